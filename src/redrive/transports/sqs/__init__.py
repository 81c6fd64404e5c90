"""Amazon SQS as a transport: standard queues, or FIFO queues whose groups are lanes."""

from redrive.transports.sqs.transport import SqsTransport, open_transport

__all__ = ["SqsTransport", "open_transport"]
