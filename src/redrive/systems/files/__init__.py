"""files: documents on their way through seven queues of RabbitMQ; each has retry, a dead-letter queue and re-drive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.systems.base import exports

if TYPE_CHECKING:
    from redrive.systems.files.dead_letters import DeadLetterQueues
    from redrive.systems.files.topology import DLQ_QUEUES, QUEUES
    from redrive.systems.files.worker import FilesWorker

__all__ = ["DLQ_QUEUES", "QUEUES", "DeadLetterQueues", "FilesWorker"]

__getattr__ = exports(
    __name__,
    {
        "dead_letters": ("DeadLetterQueues",),
        "topology": (
            "DLQ_QUEUES",
            "QUEUES",
        ),
        "worker": ("FilesWorker",),
    },
)
