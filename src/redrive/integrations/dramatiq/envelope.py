"""Pure: a message as Dramatiq writes it, without what its retries have added, and with what we add.

    {"queue_name": …, "actor_name": …, "args": […], "kwargs": {…}, "options": {…}, "message_id": …, …}

Ours is one option, `redrive`: by which headers a message that was sent back finds its letter, when it was sent, and
what went wrong in the attempts before this one. Dramatiq carries options that it does not know from retry to retry.

A body that is not JSON (Dramatiq can pickle) is never decoded by us: it is carried as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import microseconds, moment
from redrive.collect.foreign import moment_of
from redrive.flow.lineage import BY_HAND, LETTER, REPLAY, RETRIES, unsent
from redrive.integrations.letters import failure_in
from redrive.model import Failure, Headers, Message
from redrive.untrusted import UNREADABLE, is_too_deep

OPTION = "redrive"
ACTOR, REDIS_ID, UNFIT = "dramatiq-actor", "dramatiq-redis-id", "dramatiq-unfit"
_LINEAGE = (LETTER, REPLAY, RETRIES, BY_HAND)
_OF_RETRIES = ("retries", "traceback", "requeue_timestamp", "eta", "redis_message_id", OPTION)
_FIELDS = ("queue_name", "actor_name", "args", "kwargs", "options", "message_id", "message_timestamp")
_MOST_ATTEMPTS, _LONGEST_TEXT, _MOST_FRAMES = 25, 500, 5


class Ours(Struct, frozen=True, omit_defaults=True):
    """What we have put into a message's options."""

    headers: dict[str, str] = {}
    sent_at: int = 0  # microseconds
    timestamp: int = 0  # its message_timestamp before: AgeLimit counts from when it was sent back
    failures: tuple[Failure, ...] = ()

    @property
    def lineage(self) -> Headers:
        return tuple((name, value.encode()) for name, value in self.headers.items() if name in _LINEAGE)


NOTHING = Ours()


def ours_in(options: Mapping[str, Any]) -> Ours:
    """What we have put there; anybody can write anything there, and then it is nothing."""
    said = options.get(OPTION)
    if said is None:
        return NOTHING
    try:
        return msgspec.convert(said, Ours)
    except UNREADABLE:
        return NOTHING


def with_failure(options: Mapping[str, Any], failure: Failure) -> dict[str, Any]:
    """Our option with one more attempt: the first and the last are kept, where there are very many."""
    ours = ours_in(options)
    failures = (*ours.failures, _short(failure))
    if len(failures) > _MOST_ATTEMPTS:
        failures = (failures[0], *failures[2:])
    kept: dict[str, Any] = msgspec.to_builtins(replace(ours, failures=failures))
    return kept


def retries_in(options: Mapping[str, Any]) -> int:
    """How many attempts it had before this one."""
    retries = options.get("retries")
    return retries if isinstance(retries, int) and 0 <= retries < 1 << 30 else 0


def attempts_before(options: Mapping[str, Any]) -> tuple[Failure, ...]:
    """What is known of the attempts before this one: what we noted, or the traceback that Dramatiq keeps of one."""
    noted = ours_in(options).failures
    traceback, number = options.get("traceback"), retries_in(options)
    if noted or not isinstance(traceback, str) or not number:
        return noted
    millis = options.get("requeue_timestamp")
    at = moment_of(millis if isinstance(millis, int) else None, datetime.fromtimestamp(0, UTC))
    return (failure_in(traceback, at=at, attempt=number),)


def original(fields: Mapping[str, Any], queue: str) -> dict[str, Any]:
    """The message as it was first sent to that queue."""
    options = {name: value for name, value in fields["options"].items() if name not in _OF_RETRIES}
    first = ours_in(fields["options"]).timestamp or fields["message_timestamp"]
    return {**fields, "queue_name": queue, "options": options, "message_timestamp": first}


def fields_in(body: bytes) -> dict[str, Any] | None:
    """The fields of a message in JSON; None for what is none, or is not of Dramatiq."""
    if not body.startswith(b"{") or is_too_deep(body):
        return None
    try:
        fields = json.loads(body)  # and not msgspec: Python's own writes NaN, and reads it
    except UNREADABLE:
        return None
    return fields if _is_message(fields) else None


def written(fields: Mapping[str, Any], raw: bytes = b"") -> bytes:
    """The bytes of these fields as Dramatiq writes them; `raw`, if it says the same."""
    made = json.dumps(fields, separators=(",", ":")).encode()
    return raw if raw and json.loads(raw) == fields else made


def sent_body(message: Message, options: Mapping[str, Any] | None = None) -> bytes:
    """The body of a message that is sent back: with our lineage among its options, and with `options`. What is not
    JSON goes as it is."""
    fields = fields_in(message.body)
    if fields is None:
        return message.body
    lineage = {name: value.decode("ascii", "replace") for name, value in message.headers if name in _LINEAGE}
    fields = {**fields, "options": {**fields["options"], **(options or {})}}
    if lineage:
        now, first = microseconds(message.enqueued_at), fields["message_timestamp"]
        ours = Ours(lineage, now, first if isinstance(first, int) else 0)
        fields["options"][OPTION] = msgspec.to_builtins(ours)
        fields["message_timestamp"] = now // 1000
    return written(fields)


def message_of(
    fields: Mapping[str, Any], body: bytes, queue: str, *, ours: Ours = NOTHING, headers: Headers = ()
) -> Message:
    """The message of a letter. One that was sent back was enqueued when it was sent."""
    millis = ours.timestamp or fields.get("message_timestamp")
    first = moment_of(millis if isinstance(millis, int) else None, datetime.fromtimestamp(0, UTC))
    named = (ACTOR, str(fields["actor_name"]).encode("utf-8", "replace"))
    return Message(
        id=str(fields["message_id"]),
        source=queue,
        body=body,
        enqueued_at=moment(ours.sent_at) if ours.sent_at else first,
        headers=(named, *headers, *ours.lineage),
    )


def queue_of(name: str) -> str:
    """The queue whose delayed or dead messages lie in that one."""
    return name.removesuffix(".DQ").removesuffix(".XQ")


def without_lineage(message: Message) -> Message:
    return unsent(message)


def _short(failure: Failure) -> Failure:
    return replace(
        failure, stack="", message=failure.message[:_LONGEST_TEXT], frames=tuple(failure.frames[-_MOST_FRAMES:])
    )


def _is_message(fields: object) -> bool:
    if not isinstance(fields, dict) or any(name not in fields for name in _FIELDS):
        return False
    kinds: Sequence[tuple[str, type | tuple[type, ...]]] = (
        ("queue_name", str),
        ("actor_name", str),
        ("message_id", str),
        ("options", dict),
    )
    return all(isinstance(fields[name], kind) for name, kind in kinds)
