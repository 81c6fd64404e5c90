"""Letters from RQ's FailedJobRegistry.

Whoever tells of a death and whoever finds the failed job later make the same failure of it: number, worker and time of
the attempt stand in the job. So what both have is recorded once.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.collect.foreign import letter_of
from redrive.integrations.letters import failure_in, failure_told
from redrive.integrations.rq.fields import FAILURES, Fields, attempts_in, died_at, message_of, text_in
from redrive.integrations.rq.transport import Failed
from redrive.model import Failure, Letter, Reason
from redrive.transports.base import Delivery

ABANDONED, KILLED, STOPPED, STUCK = "rq.AbandonedJobError", "rq.WorkHorseKilled", "rq.JobStopped", "rq.JobStuck"
_SAID = {  # what RQ writes where no exception was raised
    "due to AbandonedJobError": ABANDONED,
    "Work-horse terminated unexpectedly": KILLED,
    "Job stopped by user": STOPPED,
    "stuck in intermediate queue": STUCK,
}
_CRASHED = (ABANDONED, KILLED)


class RqReader:
    """Letters from the failed jobs of one queue.

    transport   the name of the transport that a replay sends them back through
    source      the queue they go back to; by default the one that they failed in
    """

    def __init__(self, queue: str, *, transport: str = "rq", source: str | None = None) -> None:
        self._transport = transport
        self._source = source or queue

    def __call__(self, delivery: Delivery, now: datetime) -> Letter:
        job: Failed = delivery.token
        message = message_of(job.id, {**job.fields, "origin": self._source.encode()})
        before = attempts_in(job.fields.get(FAILURES))
        last = failure_said(job.fields, job.traceback, len(before) + 1)
        letter = letter_of(message, last, transport=self._transport, now=now, reason=reason_of(last))
        return replace(letter, failures=(*before, last))


def failure_said(fields: Fields, said: str, attempt: int) -> Failure:
    """The failure of which RQ keeps only a text."""
    at, worker = died_at(fields), text_in(fields, "worker_name")
    kind = next((kind for words, kind in _SAID.items() if words in said[:500]), None)
    if kind is not None and not said.startswith("Traceback"):
        return failure_told(kind, said.strip(), at=at, attempt=attempt, worker=worker)
    if not said.strip():
        return failure_told("rq.Unknown", "RQ keeps no traceback of it", at=at, attempt=attempt, worker=worker)
    return failure_in(said, at=at, attempt=attempt, worker=worker)


def reason_of(failure: Failure) -> Reason:
    return Reason.CRASHED if failure.type in _CRASHED else Reason.ATTEMPTS
