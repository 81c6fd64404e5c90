"""A message as AMQP carries it, and back.

Ours are two headers: `redrive` says in JSON what AMQP has no place for, `redrive-failures` holds the story of a message
that is retried. Everything else of a message that somebody else published goes on as it came, types included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs
from pika import BasicProperties

from redrive.clock import Clock, microseconds, moment
from redrive.model import Failure, Headers, Message
from redrive.transports.rabbitmq.redelivery import Redelivery, state_of

OURS, STORY, TYPED = "redrive", "redrive-failures", "redrive-amqp"
X_DEATH = "x-death"
_DEATH_HEADERS = (X_DEATH, "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason")
_NOT_THEIRS = (OURS, STORY, *_DEATH_HEADERS)
_PERSISTENT = 2
_SHORT = 255  # bytes of a shortstr
_LONGEST_STORY = 48 << 10
_MOST_HEADERS = 120 << 10  # bytes: a frame has 128 KiB, and all headers have to fit into one
_KEPT = ("content_type", "content_encoding", "reply_to", "type", "user_id", "app_id", "priority")
_failures = msgspec.msgpack.Decoder(tuple[Failure, ...])
_pack = msgspec.msgpack.Encoder()


Count = Annotated[int, Meta(ge=1, lt=1 << 31)]
Times = Annotated[int, Meta(ge=0, lt=1 << 31)]
Microseconds = Annotated[int, Meta(ge=0, lt=253_402_300_800_000_000)]  # until the year 9999


class Ours(Struct, frozen=True, omit_defaults=True):
    """What AMQP has no place for."""

    at: Microseconds = 0
    id: str | None = None  # where it is too long for AMQP
    correlation_id: str | None = None
    key: bytes | None = None
    tenant: str | None = None
    priority: int = 0
    expires: Microseconds | None = None
    attempt: Count = 1
    unsettled: Times = 0  # its state (redelivery.py), as a number
    origin: str = ""  # exchange/key where it came in first: a retry comes by another way
    pairs: tuple[tuple[str, bytes], ...] | None = None  # headers that a table cannot hold: repeated, or long names


_NOTHING = Ours()
_ours = msgspec.json.Decoder(Ours)
_ours_text = msgspec.json.Encoder()


class Arrived(Struct, frozen=True):
    """A message as it came, with what a copy of it has to carry on."""

    message: Message
    failures: tuple[Failure, ...]
    state: Redelivery
    properties: BasicProperties


# -- out ------------------------------------------------------------------------------------------------------------


def properties_of(message: Message) -> BasicProperties:
    """The properties of a message that is sent."""
    kept, typed, headers = _as_it_came(message.headers)
    table: dict[str, Any] = {name: _value(value) for name, value in headers if len(name.encode()) <= _SHORT}
    ours = Ours(
        at=microseconds(message.enqueued_at),
        id=_too_long(message.id),
        correlation_id=_too_long(message.correlation_id),
        key=message.key,
        tenant=message.tenant,
        priority=message.priority,
        expires=None if message.expires_at is None else microseconds(message.expires_at),
        attempt=message.attempt,
        pairs=headers if len(table) < len(headers) else None,
    )
    table |= {name: value for name, value in typed.items() if name in table}
    table[OURS] = _ours_text.encode(ours).decode()
    return BasicProperties(
        message_id=message.id if ours.id is None else None,
        correlation_id=message.correlation_id if ours.correlation_id is None else None,
        timestamp=int(message.enqueued_at.timestamp()),
        delivery_mode=_PERSISTENT,
        headers=table,
        **kept,
    )


def copy_of(
    came: Arrived, *, attempt: int, state: Redelivery, failures: Sequence[Failure] = (), **more: str | int
) -> BasicProperties:
    """The properties of a copy: as they came, but for the counts, the failures and those headers."""
    old, message = came.properties, came.message
    table = without_deaths(old.headers)
    ours = structs.replace(
        _read(table.get(OURS)),
        attempt=attempt,
        unsettled=int(state),
        id=_too_long(message.id),
        origin=message.origin,
    )
    table[OURS] = _ours_text.encode(ours).decode()
    if failures:
        table[STORY] = story(failures)
    table |= more
    if STORY in table and not fits(table):
        del table[STORY]
    return BasicProperties(
        message_id=message.id if ours.id is None else None,
        correlation_id=old.correlation_id,
        timestamp=old.timestamp,
        delivery_mode=_PERSISTENT,
        headers=table,
        **{name: getattr(old, name) for name in _KEPT},
    )


def fits(table: Mapping[str, Any]) -> bool:
    """Whether these headers go into one frame. The broker ends the connection of whoever sends more."""
    size = 0
    for name, value in table.items():
        size += len(name) + (len(value) if isinstance(value, str | bytes) else 16)
    if size < _MOST_HEADERS // 4:  # a character has at most four bytes
        return True
    return sum(len(_bytes(name)) + len(_bytes(value)) + 8 for name, value in table.items()) < _MOST_HEADERS


def type_of(message: Message) -> str | None:
    """The `type` that its publisher gave it."""
    found = _as_it_came(message.headers)[0].get("type")
    return found if isinstance(found, str) else None


def _as_it_came(headers: Headers) -> tuple[dict[str, Any], dict[str, Any], Headers]:
    """Properties and typed headers that a message had which somebody else published; and its other headers."""
    packed = next((value for name, value in headers if name == TYPED), None)
    if packed is None:
        return {}, {}, headers
    return *_unpacked(packed), tuple(pair for pair in headers if pair[0] != TYPED)


def _value(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _too_long(text: str | None) -> str | None:
    return text if text is not None and len(text.encode()) > _SHORT else None


def story(failures: Sequence[Failure]) -> bytes:
    """The failures, the oldest without their stacks where all of them would be too much."""
    kept = list(failures)
    for number, failure in enumerate(kept):
        packed = _pack.encode(kept)
        if len(packed) <= _LONGEST_STORY:
            return packed
        kept[number] = structs.replace(failure, stack="", message=failure.message[:1000])
    return _pack.encode(kept[-20:])


# -- in -------------------------------------------------------------------------------------------------------------


def arrived(source: str, origin: str, properties: BasicProperties, body: bytes, clock: Clock) -> Arrived:
    """Read what came from the broker, sent by Redrive or by anybody else."""
    table: Mapping[str, Any] = properties.headers or {}
    ours = _read(table.get(OURS))
    message = Message(
        ours.id or _text(properties.message_id) or clock.new_id(),
        source,
        body,
        moment(ours.at) if ours.at else _timestamp(properties, clock),
        ours.pairs if ours.pairs is not None else _headers(properties, table),
        ours.key,
        ours.tenant,
        ours.correlation_id or _text(properties.correlation_id),
        ours.attempt + rejections(table, source),
        ours.priority,
        None if ours.expires is None else moment(ours.expires),
        origin or ours.origin or _first_way(table, source),
    )
    return Arrived(message, read_story(table.get(STORY)), state_of(ours.unsettled), properties)


def rejections(table: Mapping[str, Any], queue: str) -> int:
    """How often that queue rejected it, by x-death. Whatever else stands there is nobody's count."""
    deaths = table.get(X_DEATH)
    if not isinstance(deaths, list):
        return 0
    return sum(
        death["count"]
        for death in deaths
        if isinstance(death, dict)
        and death.get("queue") == queue
        and death.get("reason") == "rejected"
        and isinstance(death.get("count"), int)
        and 0 < death["count"] < 1 << 31
    )


def _first_way(table: Mapping[str, Any], queue: str) -> str:
    """Exchange and key by which a message came that RabbitMQ itself has sent round."""
    deaths = table.get(X_DEATH)
    for death in deaths if isinstance(deaths, list) else ():
        if isinstance(death, dict) and death.get("queue") == queue and death.get("exchange"):
            keys = death.get("routing-keys")
            return f"{death['exchange']}/{keys[0] if isinstance(keys, list) and keys else ''}"
    return ""


def without_deaths(table: Mapping[str, Any] | None) -> dict[str, Any]:
    """Headers as they were before RabbitMQ counted: a copy counts anew."""
    return {name: value for name, value in (table or {}).items() if name not in _DEATH_HEADERS}


def fresh_ours(text: object) -> str:
    """What AMQP has no place for, of a message that begins anew."""
    return _ours_text.encode(structs.replace(_read(text), attempt=1, unsettled=0, expires=None)).decode()


def _read(text: object) -> Ours:
    if not isinstance(text, str | bytes):
        return _NOTHING
    try:
        return _ours.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _NOTHING


def read_story(data: object) -> tuple[Failure, ...]:
    if not isinstance(data, bytes):
        return ()
    try:
        return _failures.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def _timestamp(properties: BasicProperties, clock: Clock) -> datetime:
    stamp = properties.timestamp
    if isinstance(stamp, int) and not isinstance(stamp, bool) and 0 < stamp < 1 << 35:
        return datetime.fromtimestamp(stamp, UTC)
    return clock.now()


def _headers(properties: BasicProperties, table: Mapping[str, Any]) -> Headers:
    found = vars(properties)
    kept = {name: value for name in _KEPT if (value := found[name]) is not None}
    if not table and not kept:
        return ()
    pairs = [(_text(name) or "", _bytes(value)) for name, value in table.items() if name not in _NOT_THEIRS]
    typed = without_deaths({name: value for name, value in table.items() if not isinstance(value, str | bytes)})
    if kept or typed:
        pairs.append((TYPED, _packed(kept, typed)))
    return tuple(pairs)


def _text(value: str | bytes | None) -> str | None:
    """AMQP calls them text; what is none comes as bytes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str)


def _packed(kept: Mapping[str, Any], typed: Mapping[str, Any]) -> bytes:
    """What headers of ours have no type for, so that it goes back as it came."""
    return msgspec.msgpack.encode([kept, typed], enc_hook=str)


def _unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        kept, typed = msgspec.msgpack.decode(data)
        return {name: value for name, value in kept.items() if name in _KEPT}, dict(typed)
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError):
        return {}, {}
