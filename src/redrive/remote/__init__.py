"""The service in its other home: a server that has the store, asked over HTTP with a token.

address.py      which addresses a token is sent to
problems.py     what a server answers, as the errors that a store would have raised
http.py         one request, its answer as the struct it is, or its error
service.py      RemoteService: everything that a command can ask for (service/home.py)
parts.py        its parts: approvals, incidents, edits, repairs, tokens
credentials.py  where a token is kept: the environment, the system's keyring, a file that only its owner can read
connecting.py   a connection to a server, with the token that is kept for it
device.py       a login on another device (RFC 8628), and tokens that are renewed
"""
