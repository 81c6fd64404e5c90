"""The letters of a store as a source: for work that has no broker, and is done again by whoever can do it.

transport.py   LettersTransport: what is due is received, attempted and settled in the store itself
sent.py        what a replay sends back: a document beside its letter, leased to whoever does it
"""

from redrive.transports.letters.sent import KIND, Lease
from redrive.transports.letters.transport import LettersTransport

__all__ = ["KIND", "Lease", "LettersTransport"]
