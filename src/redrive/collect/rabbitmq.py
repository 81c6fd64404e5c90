"""Letters from dead-letter queues of RabbitMQ, filled by Redrive or by RabbitMQ itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from redrive.collect.foreign import failure_of, letter_of
from redrive.forensics.fingerprint import fingerprint
from redrive.model import DEAD_HEADER, Failure, Letter, Message, Reason
from redrive.transports.base import Delivery
from redrive.transports.rabbitmq.dead_letter_queues import (
    ATTEMPTS,
    ERROR_MESSAGE,
    ERROR_TYPE,
    PARKED_AT,
    dead_in,
    is_about,
)
from redrive.transports.rabbitmq.deaths import deaths_of
from redrive.transports.rabbitmq.topology import source_of
from redrive.transports.rabbitmq.wire import origin_of

_Moment = Annotated[datetime, Meta(tz=True)]
_REASONS = {
    "expired": ("rabbitmq.Expired", "its time to live in {queue} was over"),
    "maxlen": ("rabbitmq.QueueFull", "{queue} was full"),
    "delivery_limit": ("rabbitmq.DeliveryLimit", "{queue} delivered it as often as it may"),
    "rejected": ("rabbitmq.Rejected", "a consumer of {queue} rejected it"),
}


class RabbitReader:
    """Letters from the messages of one dead-letter queue.

    transport   the name of the transport that a replay sends them back through
    source      the queue they go back to, where the message does not say it itself
    """

    def __init__(self, queue: str, *, transport: str = "default", source: str | None = None) -> None:
        self._queue = queue
        self._transport = transport
        self._source = source

    def __call__(self, delivery: Delivery, now: datetime) -> Letter:
        table: Mapping[str, Any] = delivery.token.came.properties.headers or {}
        ours = self._ours(_bare(delivery.message), delivery, table, now)
        if ours is not None:
            return ours
        message = _bare(delivery.message, DEAD_HEADER)  # a claim that nothing proves is just a header
        said = _said(table, now)
        if said is not None:
            return letter_of(self._placed(message, table), said, transport=self._transport, now=now)
        death = _cause(deaths_of(table))
        source = self._source or str(death.get("queue") or source_of(self._queue))
        kind, text = _REASONS.get(str(death.get("reason")), ("rabbitmq.Unknown", "nothing says why it is in {queue}"))
        at, count = death.get("time"), death.get("count")
        failure = failure_of(
            kind,
            text.format(queue=death.get("queue") or self._queue),
            at.replace(tzinfo=UTC) if isinstance(at, datetime) else now,
            attempt=int(count) if isinstance(count, int) and 0 < count < 1 << 31 else 1,
        )
        reason = Reason.EXPIRED if death.get("reason") == "expired" else Reason.ATTEMPTS
        moved = replace(message, source=source, origin=origin_of(table, source) or message.origin)
        return letter_of(moved, failure, transport=self._transport, now=now, reason=reason)

    def _ours(self, message: Message, delivery: Delivery, table: Mapping[str, Any], now: datetime) -> Letter | None:
        """The letter that Redrive sent to its dead-letter queue, with all its failures; None if it was not Redrive."""
        found = self._placed(message, table)
        dead = dead_in(found, table)
        if dead is None or not delivery.failures:
            return None
        return replace(
            letter_of(found, delivery.failures[-1], transport=self._transport, now=now, reason=dead.reason),
            failures=delivery.failures,
            group=dead.group or fingerprint(delivery.failures[-1]),
            created_at=dead.created_at,
            max_retries=dead.max_retries,
            depends_on=dead.depends_on,
            expires_at=dead.expires_at,
            foreign=False,
        )

    def _placed(self, message: Message, table: Mapping[str, Any]) -> Message:
        """The message in the queue that it was parked for."""
        source = self._source or source_of(self._queue)
        return replace(message, source=source, origin=origin_of(table, source) or message.origin)


def _said(table: Mapping[str, Any], now: datetime) -> Failure | None:
    """Why it was parked, as its headers have it, whoever wrote them; None if they say nothing."""
    kind, text, at, attempt = (table.get(name) for name in (ERROR_TYPE, ERROR_MESSAGE, PARKED_AT, ATTEMPTS))
    if not isinstance(kind, str) or not kind:
        return None
    return failure_of(
        kind,
        text if isinstance(text, str) else "",
        _moment(at) or now,
        attempt=int(attempt) if isinstance(attempt, int) else 1,
    )


def _moment(text: object) -> datetime | None:
    try:
        return msgspec.convert(text, _Moment).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        return None


def _bare(message: Message, *kept: str) -> Message:
    headers = tuple(pair for pair in message.headers if pair[0] in kept or not is_about(pair[0]))
    return replace(message, headers=headers, attempt=1)


def _cause(deaths: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The entry of `x-death` that says where and why it died: the latest rejection, because waits in a retry queue
    expire after it; else the latest of all."""
    for reason in ("rejected", "delivery_limit"):
        for death in deaths:
            if death.get("reason") == reason:
                return death
    return deaths[0] if deaths else {}
