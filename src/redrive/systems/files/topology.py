"""The exchanges, queues and bindings of file processing, as its contract names them."""

from __future__ import annotations

from typing import Literal

from redrive.config.durations import Duration
from redrive.transports.rabbitmq.topology import Exchange, Topology, dlq_queue, queue

EVENTS, COMMANDS = "domain.events", "domain.commands"
_BINDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "q.upload.commands": ((COMMANDS, "commands.upload.#"), (COMMANDS, "commands.file.reprocess.*")),
    "q.validator": ((EVENTS, "files.uploaded.*"),),
    "q.thumbnail": ((EVENTS, "files.validated.*"),),
    "q.extractor": ((EVENTS, "files.validated.*"),),
    "q.projection": ((EVENTS, "#"),),
    "q.notification": ((EVENTS, "processing.#"), (EVENTS, "files.rejected.*")),
    "q.audit": ((EVENTS, "#"),),
}
QUEUES = tuple(_BINDINGS)
DLQ_QUEUES = tuple(dlq_queue(name) for name in QUEUES)
"""The parked messages that may be looked at and re-driven, unless a configuration says otherwise."""
RETRY_DELAY = "15s"
MAX_RETRIES = 3


def topology(*, delay: Duration = RETRY_DELAY, kind: Literal["classic", "quorum"] = "classic") -> Topology:
    """The topology of the contract; another delay, or quorum queues, if asked."""
    queues = tuple(queue(name, bind=bindings, delay=delay, kind=kind) for name, bindings in _BINDINGS.items())
    return Topology(queues, (Exchange(EVENTS), Exchange(COMMANDS)))
