"""A user's function over many letters, in a process of its own.

script.py   the child: what the user's function is given, and what may come back; it needs the standard library alone
process.py  the child: started, asked letter by letter, ended when it takes too long, started again
spool.py    what the dry run found, in a file, until somebody says yes
"""
