"""The embedded queue, in one SQLite file."""

from redrive.transports.sqlite.transport import SqliteTransport, open_transport

__all__ = ["SqliteTransport", "open_transport"]
