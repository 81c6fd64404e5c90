"""The log of failed attempts, with exactly the contract's fields: one JSON object a line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TextIO

import msgspec

from redrive.forensics.redact import Redactor
from redrive.systems.email.entry import iso
from redrive.telemetry.events import Event, MessageBuried, MessageRetried

Line = dict[str, Any]
_MILLISECOND = timedelta(milliseconds=1)


def failed_attempt(event: MessageRetried | MessageBuried, most: int, redactor: Redactor) -> Line:
    """The line of an attempt that failed; `nextRetryDelay` is in milliseconds, and null where none follows."""
    failure, again = event.failure, isinstance(event, MessageRetried)
    return {
        "level": "warn" if again else "error",
        "message": "Job failed, scheduling retry" if again else "Job failed, moved to DLQ",
        "jobId": event.message,
        "companyId": event.tenant,
        "attempt": failure.attempt,
        "maxAttempts": most,
        "errorCode": failure.code,
        "errorReason": redactor.text(failure.message),
        "nextRetryDelay": event.after // _MILLISECOND if isinstance(event, MessageRetried) else None,
        "isRetryable": failure.retryable,
        "timestamp": iso(failure.at),
    }


class AttemptLog:
    """Subscribes in place of a log of all events: failed attempts of the queue are its own lines, the rest goes on."""

    def __init__(
        self,
        queue: str,
        most: int,
        others: Callable[[Event], None] = lambda event: None,
        *,
        redactor: Redactor | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self._queue = queue
        self._most = most
        self._others = others
        self._redactor = redactor or Redactor()
        self._stream = stream

    def __call__(self, event: Event) -> None:
        if not isinstance(event, MessageRetried | MessageBuried) or event.source != self._queue:
            self._others(event)
            return
        line = msgspec.json.encode(failed_attempt(event, self._most, self._redactor)).decode()
        print(line, file=self._stream or sys.stderr, flush=True)
