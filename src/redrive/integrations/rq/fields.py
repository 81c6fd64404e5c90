"""Pure: a job as its hash in Redis has it, and as a message.

    rq:job:{id}   data (compressed), description, origin, timeout, retries_left, meta, … and what we add:
                  redrive-letter, redrive-replay, …   by which a job that was sent back finds its letter
                  redrive-failures                    what went wrong in the attempts before this one
                  redrive-died                        that it has died, and has a letter

The body of the message is the data, as RQ's serializer made them. Every other field that a job is made anew from is a
header, `rq-{field}`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from redrive.flow.lineage import BY_HAND, LETTER, REPLAY, RETRIES
from redrive.model import Failure, Headers, Message
from redrive.untrusted import UNREADABLE

FAILURES = "redrive-failures"
LINEAGE = (LETTER, REPLAY, RETRIES, BY_HAND)
DIED = "redrive-died"
OURS = (*LINEAGE, FAILURES, DIED)
_PREFIX = "rq-"
_PASSING = ("data", "status", "started_at", "ended_at", "last_heartbeat", "worker_name", "exc_info", "result")
_MOST_ATTEMPTS, _LONGEST_TEXT, _MOST_FRAMES = 25, 500, 5
_NEVER = datetime.fromtimestamp(0, UTC)
_failures = msgspec.json.Decoder(tuple[Failure, ...])
_encode = msgspec.json.Encoder().encode
Fields = Mapping[str, bytes]


def fields_of(raw: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """A hash as Redis gives it."""
    return {name.decode("utf-8", "replace"): value for name, value in raw.items()}


def as_fields(values: Mapping[str, object]) -> dict[str, bytes]:
    """What a Job would write into its hash."""
    return {name: value if isinstance(value, bytes) else str(value).encode() for name, value in values.items()}


def message_of(id: str, fields: Fields, body: bytes | None = None) -> Message:
    """The message of a job; with its lineage, if it was sent back."""
    kept = tuple((f"{_PREFIX}{name}", value) for name, value in fields.items() if _is_kept(name, value))
    group = fields.get("group_id", b"").decode("utf-8", "replace")
    return Message(
        id=id,
        source=text_in(fields, "origin") or "default",
        body=inflated(fields.get("data", b"")) if body is None else body,
        enqueued_at=moment_in(fields, "enqueued_at") or moment_in(fields, "created_at") or _NEVER,
        headers=(*kept, *lineage_in(fields)),
        correlation_id=group or None,
    )


def lineage_in(fields: Fields) -> Headers:
    return tuple((name, fields[name]) for name in LINEAGE if name in fields)


def job_fields(message: Message) -> dict[str, bytes]:
    """The hash that a job is made anew from, where Redis has lost it."""
    kept = {name.removeprefix(_PREFIX): value for name, value in message.headers if name.startswith(_PREFIX)}
    return {"data": zlib.compress(message.body), **kept}


def inflated(data: bytes) -> bytes:
    """The data of a job, which RQ compresses; old versions did not."""
    try:
        return zlib.decompress(data)
    except zlib.error:
        return data


def died_at(fields: Fields) -> datetime:
    """When the attempt ended that its fields tell of: the same whoever asks, so that one death is recorded once."""
    started, ended = moment_in(fields, "started_at"), moment_in(fields, "ended_at")
    if ended is not None and (started is None or ended >= started):
        return ended
    names = ("last_heartbeat", "started_at", "enqueued_at", "created_at")
    return next((at for name in names if (at := moment_in(fields, name)) is not None), _NEVER)


def attempts_in(value: bytes | None) -> tuple[Failure, ...]:
    """The attempts that we have noted; anybody can write anything there, and then it is none."""
    if not value:
        return ()
    try:
        return _failures.decode(value)
    except UNREADABLE:
        return ()


def noted(before: tuple[Failure, ...], failure: Failure) -> bytes:
    """The attempts with one more: the first and the last are kept, where there are very many."""
    short = replace(
        failure, stack="", message=failure.message[:_LONGEST_TEXT], frames=tuple(failure.frames[-_MOST_FRAMES:])
    )
    failures = (*before, short)
    return _encode(failures if len(failures) <= _MOST_ATTEMPTS else (failures[0], *failures[2:]))


def text_in(fields: Fields, name: str) -> str:
    return fields.get(name, b"").decode("utf-8", "replace")


def moment_in(fields: Fields, name: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text_in(fields, name))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _is_kept(name: str, value: bytes) -> bool:
    return name not in _PASSING and name not in OURS and value != b""
