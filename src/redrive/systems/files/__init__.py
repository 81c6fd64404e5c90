"""files: documents on their way through seven consumers on RabbitMQ, with retry, parking and re-drive for each."""

from redrive.systems.files.parked import ParkedQueues
from redrive.systems.files.topology import DLQ_QUEUES, QUEUES, topology
from redrive.systems.files.worker import FilesWorker

__all__ = ["DLQ_QUEUES", "QUEUES", "FilesWorker", "ParkedQueues", "topology"]
