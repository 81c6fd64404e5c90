"""Runs a user's handler away from its worker, where it can do no harm.

isolation.py    what an app sends and keeps goes nowhere
handlers.py     which handler MODULE:NAME names, or which there are
trying.py       one message through a handler, as a worker would attempt it
shadow.py       many letters through a handler in a process of its own; child.py is that process, wire.py what they say
envfile.py      the variables that this process gets
debugger.py     one message through a handler under pdb or debugpy
pytest_file.py  a test with the message as a fixture, which fails as the letter did
"""
