"""PostgreSQL as a queue: every step is a function in the database, every function works on a batch (migrations/)."""

from redrive.transports.postgresql.transport import PostgresqlTransport, open_transport

__all__ = ["PostgresqlTransport", "open_transport"]
