"""Messages, failures and letters with sensible defaults: a test names only what it is about."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from typing import Any

from msgspec.structs import replace

from redrive.forensics.fingerprint import fingerprint
from redrive.model import Category, Failure, Letter, Message, Reason, State, letter_id
from redrive.testing.clock import START

_numbers = count(1)


def make_message(**changes: Any) -> Message:
    """A message with an id that no other has."""
    return replace(Message(id=f"message-{next(_numbers)}", source="orders", body=b"{}", enqueued_at=START), **changes)


def make_failure(**changes: Any) -> Failure:
    """A failure that is worth a retry."""
    failure = Failure(
        type="builtins.RuntimeError",
        message="it did not work",
        category=Category.TRANSIENT,
        retryable=True,
        at=START,
        attempt=1,
        worker="worker-1",
    )
    return replace(failure, **changes)


def make_letter(message: Message | None = None, *failures: Failure, at: datetime = START, **changes: Any) -> Letter:
    """A pending letter of that message, created at that time."""
    message = message or make_message()
    failures = failures or (make_failure(at=at),)
    letter = Letter(
        id=letter_id(message.source, message.id),
        message=message,
        failures=failures,
        state=State.PENDING,
        reason=Reason.ATTEMPTS,
        group=fingerprint(failures[-1]),
        created_at=at,
        updated_at=at,
    )
    return replace(letter, **changes)
