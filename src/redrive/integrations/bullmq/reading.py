"""What `redrive collect` makes of a failed job."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.integrations.bullmq.jobs import Job
from redrive.model import Letter
from redrive.transports.base import Delivery


class BullReader:
    """Letters of the failed jobs of one queue.

    transport   the name of the transport that a replay sends them back through
    source      the queue they go back to; by default the one they failed in
    """

    def __init__(self, queue: str, *, transport: str = "bullmq", source: str | None = None) -> None:
        self._transport = transport
        self._source = source

    def __call__(self, delivery: Delivery, now: datetime) -> Letter:
        job: Job = delivery.token
        job = job if self._source is None else replace(job, queue=self._source)
        return job.letter(transport=self._transport, now=now, watched=False)
