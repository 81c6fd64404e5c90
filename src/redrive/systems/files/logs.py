"""The log of file processing: failures, retries and dead messages in the contract's fields, one JSON object a line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any, TextIO

import msgspec
from msgspec import Struct

from redrive.flow.around import Call
from redrive.forensics.redact import Redactor
from redrive.model import Failure, Message
from redrive.telemetry.events import Event, MessageBuried, MessageRetried
from redrive.transports.rabbitmq.typed import type_of

Line = dict[str, Any]
_MOST = 10_000


class Passing(Struct, frozen=True):
    """The fields of a message that the log needs and its events do not have."""

    routing_key: str
    message_type: str | None


class FilesLog:
    """Subscribes in place of a log of all events; the events of other sources go on to `others`."""

    def __init__(
        self,
        queues: Collection[str],
        most: int,
        others: Callable[[Event], None] = lambda event: None,
        *,
        redactor: Redactor | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self._queues = frozenset(queues)
        self._most = most
        self._others = others
        self._redactor = redactor or Redactor()
        self._stream = stream
        self._failed: dict[tuple[str, str], Passing] = {}

    async def noting(self, message: Message, call: Call) -> Any:
        """Around a handler: if it fails, what the log needs of the message is kept until its event comes."""
        try:
            return await call()
        except BaseException:
            self._note(message)
            raise

    def _note(self, message: Message) -> None:
        if len(self._failed) >= _MOST:  # of messages whose events never came
            self._failed.pop(next(iter(self._failed)))
        key = message.origin.partition("/")[2] or message.source
        self._failed[message.source, message.id] = Passing(key, type_of(message))

    def __call__(self, event: Event) -> None:
        if not isinstance(event, MessageRetried | MessageBuried) or event.source not in self._queues:
            self._others(event)
            return
        about = self._failed.pop((event.source, event.message), Passing(event.source, None))
        if isinstance(event, MessageRetried):
            self._write("error", "message processing failed", event, about)
            self._write("warn", "message sent to retry", event, about, delayMs=round(event.after.total_seconds() * 1e3))
        else:
            self._write("error", "message processing failed", event, about)
            self._write("error", "message parked in DLQ", event, about, dlq=f"{event.source}.dlq", reason=event.reason)

    def _write(
        self, level: str, text: str, event: MessageRetried | MessageBuried, about: Passing, **more: object
    ) -> None:
        failure: Failure = event.failure
        line: Line = {
            "level": level,
            "message": text,
            "correlationId": event.correlation_id,
            "queue": event.source,
            "routingKey": about.routing_key,
            "messageType": about.message_type,
            "messageId": event.message,
            "attempt": failure.attempt,
            "maxAttempts": self._most,
            "errorType": failure.type,
            "error": self._redactor.text(failure.message),
            "timestamp": failure.at.isoformat(),
            **more,
        }
        print(msgspec.json.encode(line).decode(), file=self._stream or sys.stderr, flush=True)
