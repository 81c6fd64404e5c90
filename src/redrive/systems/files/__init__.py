"""files: documents on their way through seven consumers on RabbitMQ, with retry, parking and re-drive for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.systems.base import exports

if TYPE_CHECKING:
    from redrive.systems.files.parked import ParkedQueues
    from redrive.systems.files.topology import DLQ_QUEUES, QUEUES
    from redrive.systems.files.worker import FilesWorker

__all__ = ["DLQ_QUEUES", "QUEUES", "FilesWorker", "ParkedQueues"]

__getattr__ = exports(
    __name__,
    {
        "parked": ("ParkedQueues",),
        "topology": (
            "DLQ_QUEUES",
            "QUEUES",
        ),
        "worker": ("FilesWorker",),
    },
)
