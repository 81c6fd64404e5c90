"""Makes letters from what little another system says of a failure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.flow.classify import classify_text
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Category, Failure, Letter, Message, Reason, State, letter_id

_MOST = 32_000


def failure_of(
    kind: str,
    text: str,
    at: datetime,
    *,
    attempt: int = 1,
    stack: str = "",
    code: str | None = None,
    worker: str = "",
) -> Failure:
    """The failure that is known; its category is a guess from the words."""
    verdict = classify_text(f"{kind.rpartition('.')[2]} {text}")
    return Failure(
        type=kind,
        message=text,
        category=verdict.category if verdict else Category.PERMANENT,
        retryable=verdict.retryable if verdict else False,
        at=at,
        attempt=max(attempt, 1),
        stack=stack[:_MOST],
        code=code,
        worker=worker,
    )


def letter_of(
    message: Message, failure: Failure, *, transport: str, now: datetime, reason: Reason = Reason.ATTEMPTS
) -> Letter:
    """A letter that waits for a person: nobody has said that it should be retried."""
    return Letter(
        id=letter_id(message.source, message.id),
        message=replace(message, attempt=1),
        failures=(failure,),
        state=State.PENDING,
        reason=reason,
        group=fingerprint(failure),
        created_at=now,
        updated_at=now,
        transport=transport,
    )


def text_of(value: bytes | None) -> str:
    """A header as a text, whatever it holds."""
    return "" if value is None else value.decode("utf-8", "replace")


def number_of(value: bytes | None) -> int | None:
    """A header as a number: written as a text, or as Java writes an int or a long."""
    if value is None:
        return None
    if len(value) in (4, 8) and not value.isdigit():
        return int.from_bytes(value, "big", signed=True)
    return int(value) if value.isdigit() and len(value) < 19 else None


def moment_of(millis: int | None, otherwise: datetime) -> datetime:
    from datetime import UTC

    if millis is None or not 0 < millis < 1 << 47:
        return otherwise
    return datetime.fromtimestamp(millis / 1000, UTC)
