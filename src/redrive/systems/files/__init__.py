"""files: documents on their way through seven queues of RabbitMQ; each has retry, a dead-letter queue and re-drive."""

from redrive.systems.files.parked import DeadLetterQueues
from redrive.systems.files.topology import DLQ_QUEUES, QUEUES, topology
from redrive.systems.files.worker import FilesWorker

__all__ = ["DLQ_QUEUES", "QUEUES", "DeadLetterQueues", "FilesWorker", "topology"]
