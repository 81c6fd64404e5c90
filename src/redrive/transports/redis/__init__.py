"""Redis as a queue: every step is a script on the server, every script works on a batch (lua/)."""

from redrive.transports.redis.transport import RedisTransport, open_transport

__all__ = ["RedisTransport", "open_transport"]
