"""What people and programs are shown of a queue: how its messages stand, redacted, and who has them in hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from redrive.forensics.redact import Redactor
from redrive.forensics.views import masked
from redrive.model import Failure, Letter
from redrive.transports.base import Depth, Paused, Queued, QueueState

_MOST_OF_BODY = 2000


class QueuedView(Struct, frozen=True, kw_only=True):
    """A message of a queue on one line."""

    id: str
    state: QueueState
    attempt: int  # that is being made, or the next
    next_attempt_at: datetime | None  # of a delayed one
    leased_until: datetime | None
    leased_by: str  # the worker, or what its transport calls the lease of one that says nothing of itself
    error_type: str  # of the last attempt
    error_message: str
    key: str | None
    tenant: str | None
    priority: int
    enqueued_at: datetime
    place: str
    letter: str | None  # its retry waits in the store, as this letter
    body: str


class QueuePage(Struct, frozen=True, kw_only=True):
    """A page of a queue, and what could not be shown."""

    source: str
    transport: str
    depth: Depth
    paused: Paused | None
    messages: list[QueuedView]
    after: str | None
    notes: list[str]


def queued_view(queued: Queued, redactor: Redactor, workers: Mapping[str, str]) -> QueuedView:
    """The message, redacted; `workers` knows them by the holder of their leases."""
    is_leased = queued.state is QueueState.LEASED
    return _view(
        queued,
        redactor,
        next_attempt_at=None if is_leased else queued.until,
        leased_until=queued.until if is_leased else None,
        leased_by=workers.get(queued.holder, queued.holder),
    )


def parked_view(letter: Letter, redactor: Redactor) -> QueuedView:
    """A letter whose message waits in the store for its next attempt."""
    queued = Queued(letter.message, QueueState.DELAYED, letter.failures, place="the store")
    return _view(queued, redactor, next_attempt_at=letter.next_retry_at, letter=letter.id)


def _view(
    queued: Queued,
    redactor: Redactor,
    *,
    next_attempt_at: datetime | None,
    leased_until: datetime | None = None,
    leased_by: str = "",
    letter: str | None = None,
) -> QueuedView:
    message, last = queued.message, _last(queued)
    return QueuedView(
        id=masked(redactor.text, message.id),
        state=queued.state,
        attempt=message.attempt,
        next_attempt_at=next_attempt_at,
        leased_until=leased_until,
        leased_by=leased_by,
        error_type="" if last is None else last.type,
        error_message="" if last is None else masked(redactor.text, last.message),
        key=None if message.key is None else masked(redactor.start, message.key),
        tenant=None if message.tenant is None else masked(redactor.text, message.tenant),
        priority=message.priority,
        enqueued_at=message.enqueued_at,
        place=queued.place,
        letter=letter,
        body=masked(lambda body: redactor.body(body, _MOST_OF_BODY), message.body),
    )


def _last(queued: Queued) -> Failure | None:
    return queued.failures[-1] if queued.failures else None
