"""Letters from dead-letter queues of RabbitMQ, filled by Redrive or by RabbitMQ itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.collect.foreign import failure_of, letter_of
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Letter, Message, Reason, letter_id
from redrive.transports.base import Delivery
from redrive.transports.rabbitmq.dead_letter_queues import DEAD, Dead, is_about
from redrive.transports.rabbitmq.wire import X_DEATH

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
        death = _last_death(table)
        source = self._source or str(death.get("queue") or self._queue.removesuffix(".dlq"))
        kind, text = _REASONS.get(str(death.get("reason")), ("rabbitmq.Unknown", "nothing says why it is in {queue}"))
        at, count = death.get("time"), death.get("count")
        failure = failure_of(
            kind,
            text.format(queue=death.get("queue") or self._queue),
            at.replace(tzinfo=UTC) if isinstance(at, datetime) else now,
            attempt=int(count) if isinstance(count, int) and 0 < count < 1 << 31 else 1,
        )
        reason = Reason.EXPIRED if death.get("reason") == "expired" else Reason.ATTEMPTS
        moved = replace(message, source=source)
        return letter_of(moved, failure, transport=self._transport, now=now, reason=reason)

    def _ours(self, message: Message, delivery: Delivery, table: Mapping[str, Any], now: datetime) -> Letter | None:
        """The letter that Redrive sent to its dead-letter queue, with all its failures; None if it was not Redrive."""
        said = table.get(DEAD)
        if not isinstance(said, str | bytes) or not delivery.failures:
            return None
        try:
            dead = msgspec.json.decode(said, type=Dead)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        source = self._source or self._queue.removesuffix(".dlq")
        found = replace(message, source=source, attempt=1)
        return replace(
            letter_of(found, delivery.failures[-1], transport=self._transport, now=now, reason=dead.reason),
            id=letter_id(source, message.id),
            failures=delivery.failures,
            group=dead.group or fingerprint(delivery.failures[-1]),
            created_at=dead.created_at,
            max_retries=dead.max_retries,
            depends_on=dead.depends_on,
            expires_at=dead.expires_at,
        )


def _bare(message: Message) -> Message:
    headers = tuple(pair for pair in message.headers if not is_about(pair[0]))
    return replace(message, headers=headers, attempt=1)


def _last_death(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The latest entry of `x-death`, which RabbitMQ writes first; empty if it is not as RabbitMQ writes it."""
    deaths = table.get(X_DEATH)
    if not isinstance(deaths, list):
        return {}
    return next((death for death in deaths if isinstance(death, dict) and isinstance(death.get("queue"), str)), {})
