"""Letters from dead-letter queues of RabbitMQ, filled by Redrive or by RabbitMQ itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.collect.foreign import failure_of, letter_of
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Letter, Message, Reason, letter_id
from redrive.transports.base import Delivery
from redrive.transports.rabbitmq.dead_letter_queues import DEAD, Dead, is_about
from redrive.transports.rabbitmq.deaths import deaths_of
from redrive.transports.rabbitmq.topology import source_of
from redrive.transports.rabbitmq.wire import origin_of
from redrive.untrusted import UNREADABLE

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
        message = _bare(delivery.message)
        ours = self._ours(message, delivery, table, now)
        if ours is not None:
            return ours
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
        said = table.get(DEAD)
        if not isinstance(said, str | bytes) or not delivery.failures:
            return None
        try:
            dead = msgspec.json.decode(said, type=Dead)
        except UNREADABLE:
            return None
        source = self._source or source_of(self._queue)
        found = replace(message, source=source, attempt=1, origin=origin_of(table, source) or message.origin)
        return replace(
            letter_of(found, delivery.failures[-1], transport=self._transport, now=now, reason=dead.reason),
            id=letter_id(source, message.id),
            failures=delivery.failures,
            group=dead.group or fingerprint(delivery.failures[-1]),
            created_at=dead.created_at,
            max_retries=dead.max_retries,
            depends_on=dead.depends_on,
            expires_at=dead.expires_at,
            foreign=False,
        )


def _bare(message: Message) -> Message:
    headers = tuple(pair for pair in message.headers if not is_about(pair[0]))
    return replace(message, headers=headers, attempt=1)


def _cause(deaths: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The entry of `x-death` that says where and why it died: the latest rejection, because waits in a retry queue
    expire after it; else the latest of all."""
    for reason in ("rejected", "delivery_limit"):
        for death in deaths:
            if death.get("reason") == reason:
                return death
    return deaths[0] if deaths else {}
