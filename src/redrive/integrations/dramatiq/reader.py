"""Letters from Dramatiq's dead-letter queues, `QUEUE.XQ`.

A dead message lies there as it was enqueued for its last attempt: it tells of the attempts before that one, and nothing
of the last. Where a worker with our middleware has told of that one itself, `redrive.collect.joining` sees that it is
the same death, and nothing is recorded twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from redrive.collect.foreign import letter_of
from redrive.collect.joining import FOUND_DEAD
from redrive.forensics.fingerprint import fingerprint
from redrive.integrations.dramatiq.envelope import (
    attempts_before,
    fields_in,
    message_of,
    original,
    ours_in,
    queue_of,
    retries_in,
    written,
)
from redrive.integrations.dramatiq.over_redis import Place
from redrive.model import Category, Failure, Letter, Message, Reason, Stage
from redrive.transports.base import Delivery
from redrive.transports.rabbitmq.deaths import deaths_of

_UNTOLD = "it was rejected for good: what its last attempt raised is in the log of its worker only"
_UNREADABLE = "no message in JSON: either no worker could decode it, or it is of an encoder that we do not read"


class DramatiqReader:
    """Letters from the messages of one dead-letter queue.

    transport   the name of the transport that a replay sends them back through
    source      the queue they go back to; by default the one that they died in
    """

    def __init__(self, queue: str, *, transport: str = "dramatiq", source: str | None = None) -> None:
        self._queue = queue
        self._transport = transport
        self._source = source or queue_of(queue)

    def __call__(self, delivery: Delivery, now: datetime) -> Letter:
        raw, died = delivery.message, _died_at(delivery, now)
        fields = fields_in(raw.body)
        if fields is None:
            return self._unreadable(delivery, died, now)
        options: Mapping[str, Any] = fields["options"]
        body = written(original(fields, self._source), raw.body)
        message = message_of(fields, body, self._source, ours=ours_in(options))
        last = _found_dead(_UNTOLD, died, retries_in(options) + 1)
        letter = letter_of(message, last, transport=self._transport, now=now)
        failures = (*attempts_before(options), last)
        told = failures[-2] if len(failures) > 1 else last  # the attempt before names the cause, as a rule
        return replace(letter, failures=failures, group=fingerprint(told))

    def _unreadable(self, delivery: Delivery, died: datetime, now: datetime) -> Letter:
        """As it lies there. In RabbitMQ it has no id: its bytes are its name."""
        raw = delivery.message
        id = raw.id if isinstance(delivery.token, Place) else blake2b(raw.body, digest_size=10).hexdigest()
        message = Message(id, self._source, raw.body, died, raw.headers)
        last = _found_dead(_UNREADABLE, died, 1, Stage.DECODE)
        return letter_of(message, last, transport=self._transport, now=now, reason=Reason.UNDECODABLE)


def _found_dead(why: str, at: datetime, attempt: int, stage: Stage = Stage.HANDLE) -> Failure:
    return Failure(
        type=FOUND_DEAD,
        message=why,
        category=Category.PERMANENT,
        retryable=False,
        at=at,
        attempt=attempt,
        stage=stage,
    )


def _died_at(delivery: Delivery, now: datetime) -> datetime:
    """When its worker rejected it: what Redis has noted, or what RabbitMQ says in x-death."""
    if isinstance(delivery.token, Place):
        return delivery.token.at
    deaths = deaths_of(delivery.token.came.properties.headers or {})
    at = deaths[0].get("time") if deaths else None
    return at.replace(tzinfo=UTC) if isinstance(at, datetime) else now
