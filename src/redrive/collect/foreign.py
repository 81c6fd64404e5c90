"""Makes letters from what little another system says of a failure."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from redrive.flow.classify import RETRYABLE
from redrive.flow.foreign import read_foreign
from redrive.forensics.fingerprint import fingerprint
from redrive.forensics.stacks import cut_stack
from redrive.model import Category, Failure, Letter, Message, Reason, Stage, State, letter_id

SUFFIXES = (".dlq", ".dlt", ".DLT", ".DLQ", "-dlt", "-dlq", "-DLT")
"""What is added to the name of a topic, for its dead letters."""
_MOST = 32_000
_LONGEST_MESSAGE = 4_000


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
    """The failure that is known; its category and its frames are read from type, message and stack trace."""
    known = read_foreign(kind, text, stack)
    category = known.category or Category.PERMANENT
    return Failure(
        type=kind,
        message=text,
        category=category,
        retryable=category in RETRYABLE,
        at=at,
        attempt=attempt if 0 < attempt < 1 << 31 else 1,
        stack=cut_stack(stack, _MOST),
        frames=known.frames,
        code=code or known.code,
        worker=worker,
    )


def letter_of(
    message: Message, failure: Failure, *, transport: str, now: datetime, reason: Reason = Reason.ATTEMPTS
) -> Letter:
    """A letter that waits for a person: nobody has said that it should be retried, and who handles its message does not
    tell us what becomes of it."""
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
        foreign=True,
    )


def unread(message: Message, error: Exception, now: datetime) -> Letter:
    """The letter of a dead message that its reader cannot cope with: as it lies there, with the reader's error."""
    failure = Failure(
        type="redrive.Unreadable",
        message=f"to read why it died failed: {type(error).__name__}: {error}"[:_LONGEST_MESSAGE],
        category=Category.VALIDATION,
        retryable=False,
        at=message.enqueued_at,
        attempt=1,
        stage=Stage.DELIVERY,
    )
    return letter_of(message, failure, transport="default", now=now, reason=Reason.UNDECODABLE)


class Said(Struct, frozen=True):
    """What another system says of a dead message."""

    message: Message  # as it was before it died: with its own headers only, and the time it was sent at
    failure: Failure
    source: str | None = None  # where it came from
    place: str | None = None  # where exactly: `orders[3]@1007`


def text_of(value: bytes | None) -> str:
    """A header as a text, whatever it holds."""
    return "" if value is None else value.decode("utf-8", "replace")


def number_of(value: bytes | None) -> int | None:
    """A header as a number: written as a text, or as Java writes an int, a long, or a time as a BigInteger."""
    if value is None:
        return None
    if len(value) in (4, 6, 8) and not value.isdigit():
        return int.from_bytes(value, "big", signed=True)
    return int(value) if value.isdigit() and len(value) < 19 else None


def place_of(topic: str, partition: int | None, offset: int | None) -> str | None:
    """Where a record lay, as Redrive calls it; None if that is not known."""
    if partition is None or offset is None or partition < 0 or offset < 0:
        return None
    return f"{topic}[{partition}]@{offset}"


def stripped(message: Message, *prefixes: str) -> Message:
    """The message without the headers whose names begin so."""
    return replace(message, headers=tuple(pair for pair in message.headers if not pair[0].startswith(prefixes)))


def moment_of(millis: int | None, otherwise: datetime) -> datetime:
    if millis is None or not 0 < millis < 1 << 47:
        return otherwise
    return datetime.fromtimestamp(millis / 1000, UTC)
