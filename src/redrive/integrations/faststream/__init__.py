"""FastStream: what its handlers could not handle becomes a letter, and a replay publishes the same bytes again.

    broker.add_middleware(RedriveMiddleware(store="postgresql://…"))

middleware.py   what a worker reports
endings.py      whether a message that failed comes again, or is gone
reading.py      a message of RabbitMQ, Kafka or Redis, as FastStream hands it out raw
envelope.py     how FastStream carries headers through Redis
transport.py    the way back: faststream+amqp://, faststream+kafka://, faststream+redis://
"""

from redrive.systems.base import exports

__all__ = ["RedriveMiddleware"]
__getattr__ = exports("redrive.integrations.faststream", {"middleware": ("RedriveMiddleware",)}, "faststream")
