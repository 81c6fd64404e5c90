"""A message as AMQP carries it, and back.

Ours are three headers: `redrive` says in JSON what AMQP has no place for, `redrive-failures` holds the story of a
message that is retried, `redrive-deaths` what RabbitMQ had said of it before (deaths.py). Everything else of a message
that somebody else published goes on as it came: each header is the bytes that it was.

`CC` and `BCC` go under other names: RabbitMQ would send a copy to the queues that they name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs
from pika import BasicProperties

from redrive.clock import Clock, microseconds, moment
from redrive.model import Failure, Headers, Message
from redrive.transports.rabbitmq.deaths import DEATH_HEADERS, DEATHS, first_way, kept_deaths, rejections
from redrive.transports.rabbitmq.fields import Field, Name, field_of, fields_in, text_of, text_or_bytes, value_of
from redrive.transports.rabbitmq.properties import Properties
from redrive.transports.rabbitmq.redelivery import Redelivery, state_of
from redrive.transports.rabbitmq.typed import KEPT, TYPED, Came, as_it_came, bytes_of, packed, text_or_escaped
from redrive.untrusted import UNREADABLE

OURS, STORY = "redrive", "redrive-failures"
_COUNTS = ("x-delivery-count", "x-acquired-count")  # what a quorum queue counts
_BROKERS = frozenset((*DEATH_HEADERS, *_COUNTS, DEATHS))
_NOT_THEIRS = _BROKERS | {OURS, STORY}
_AWAY = {name: f"redrive-{name}" for name in ("CC", "BCC")}
_BACK = {away: name for name, away in _AWAY.items()}
_PERSISTENT = 2
_SHORT = 255  # bytes of a shortstr
_LONGEST_STORY = 48 << 10
_failures = msgspec.msgpack.Decoder(tuple[Failure, ...])
_pack = msgspec.msgpack.Encoder()
log = logging.getLogger("redrive")


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
    user_id: str | None = None  # who published it first: the broker takes no copy of ours that says so
    pairs: tuple[tuple[str, bytes], ...] | None = None  # headers that a table cannot hold: repeated, or long names


_NOTHING = Ours()
_ours = msgspec.json.Decoder(Ours)
_ours_text = msgspec.json.Encoder()


class Arrived(Struct, frozen=True):
    """A message as it came, with what a copy of it has to carry on."""

    message: Message
    failures: tuple[Failure, ...]
    state: Redelivery
    properties: Properties
    unreadable: str = ""  # why its headers cannot be read


# -- out ------------------------------------------------------------------------------------------------------------


def properties_of(message: Message, *, dead: bool = False) -> Properties:
    """The properties of a message that is sent, or of one that is dead: its headers then say how RabbitMQ moved it."""
    came = as_it_came(message.headers)
    table = _table(came)
    ours = Ours(
        at=microseconds(message.enqueued_at),
        id=_too_long(message.id),
        correlation_id=_too_long(message.correlation_id),
        key=message.key,
        tenant=message.tenant,
        priority=message.priority,
        expires=None if message.expires_at is None else microseconds(message.expires_at),
        attempt=message.attempt,
        origin=message.origin,
        user_id=text_or_escaped(came.kept.get("user_id")),
        pairs=message.headers if len(table) < len(came.headers) else None,
    )
    table[OURS] = _ours_text.encode(ours).decode()
    return Properties(
        message_id=message.id if ours.id is None else None,
        correlation_id=message.correlation_id if ours.correlation_id is None else None,
        timestamp=int(message.enqueued_at.timestamp()),
        delivery_mode=_PERSISTENT,
        headers={**table, **came.deaths} if dead else table,
        **came.kept,
    )


def _table(came: Came) -> dict[Name, Any]:
    """Headers as a table: those that came with a type of AMQP's have it still, unless somebody has edited them."""
    typed = {text_of(name): (name, field) for name, field in came.typed.items()}
    table: dict[Name, Any] = {}
    for name, value in came.headers:
        raw, field = typed.get(name, (name, None))
        if field is None or bytes_of(value_of(field)) != value:
            raw, field = name, field_of(text_or_bytes(value))
        if len(raw) <= _SHORT and len(name.encode()) <= _SHORT:
            table[_AWAY.get(name, raw)] = field
    return table


def copy_of(came: Arrived, *, attempt: int, state: Redelivery, failures: Sequence[Failure] = ()) -> Properties:
    """The properties of a copy: as they came, but for the counts and the failures."""
    old, message = came.properties, came.message
    fields = fields_in(old.raw)
    table = their_fields(fields)
    ours = structs.replace(
        _read((old.headers or {}).get(OURS)),
        attempt=attempt,
        unsettled=int(state),
        id=_too_long(message.id),
        origin=message.origin,
    )
    if old.user_id is not None:
        ours = structs.replace(ours, user_id=text_or_escaped(old.user_id))
    table[OURS] = _ours_text.encode(ours).decode()
    if failures or STORY.encode() in fields:
        table[STORY] = story(failures) if failures else fields[STORY.encode()]
    if deaths := kept_deaths(fields, message.source):
        table[DEATHS] = field_of(deaths)
    return Properties(
        message_id=(old.message_id or message.id) if ours.id is None else None,
        correlation_id=old.correlation_id,
        timestamp=old.timestamp,
        delivery_mode=_PERSISTENT,
        headers=table,
        **{name: getattr(old, name) for name in KEPT},
    )


SPARE = (STORY, DEATHS)
"""Headers of ours that a message goes without where they do not fit into a frame, the first ones first."""


def their_fields(fields: Mapping[bytes, Field]) -> dict[Name, Any]:
    """The headers of whoever published it, as they came: without ours, and without what RabbitMQ itself writes."""
    return {_AWAY.get(text_of(name), name): field for name, field in fields.items() if text_of(name) not in _NOT_THEIRS}


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


def safely_arrived(source: str, origin: str, properties: Properties, body: bytes, clock: Clock) -> Arrived:
    """Read what came. Whatever its headers do to us, it becomes a letter; they go on with its copies as they are."""
    try:
        return arrived(source, origin, properties, body, clock)
    except Exception as error:
        log.exception("the headers of a message in %s cannot be read: it is buried", source)
        message = Message(clock.new_id(), source, body, clock.now(), origin=origin)
        why = f"its headers cannot be read: {type(error).__name__}: {error}"
        return Arrived(message, (), Redelivery.FRESH, properties, why)


def arrived(source: str, origin: str, properties: Properties, body: bytes, clock: Clock) -> Arrived:
    """Read what came from the broker, sent by Redrive or by anybody else."""
    table: Mapping[str, Any] = properties.headers or {}
    ours = _read(table.get(OURS))
    message = Message(
        ours.id or text_or_escaped(properties.message_id) or clock.new_id(),
        source,
        body,
        moment(ours.at) if ours.at else _timestamp(properties, clock),
        ours.pairs if ours.pairs is not None else _headers(source, properties, table, ours),
        ours.key,
        ours.tenant,
        ours.correlation_id or text_or_escaped(properties.correlation_id),
        ours.attempt + rejections(table, source),
        ours.priority,
        None if ours.expires is None else moment(ours.expires),
        origin or ours.origin or first_way(table, source),
    )
    return Arrived(message, read_story(table.get(STORY)), state_of(ours.unsettled), properties)


def renewed_ours(text: object, origin: str) -> str:
    """What AMQP has no place for, of a message that begins anew."""
    ours = _read(text)
    return _ours_text.encode(
        structs.replace(ours, attempt=1, unsettled=0, expires=None, origin=ours.origin or origin)
    ).decode()


def origin_of(table: Mapping[str, Any], queue: str) -> str:
    """Exchange and key by which a message first came to that queue, if its headers say it."""
    return _read(table.get(OURS)).origin or first_way(table, queue)


def _read(text: object) -> Ours:
    if not isinstance(text, str | bytes):
        return _NOTHING
    try:
        return _ours.decode(text)
    except UNREADABLE:
        return _NOTHING


def read_story(data: object) -> tuple[Failure, ...]:
    if not isinstance(data, bytes):
        return ()
    try:
        return _failures.decode(data)
    except UNREADABLE:
        return ()


def _timestamp(properties: BasicProperties, clock: Clock) -> datetime:
    stamp = properties.timestamp
    if isinstance(stamp, int) and not isinstance(stamp, bool) and 0 < stamp < 1 << 35:
        return datetime.fromtimestamp(stamp, UTC)
    return clock.now()


def _headers(source: str, properties: Properties, table: Mapping[str, Any], ours: Ours) -> Headers:
    found = vars(properties)
    kept = {name: value for name in KEPT if (value := found[name]) is not None}
    if ours.user_id is not None:
        kept["user_id"] = ours.user_id
    if not kept and _NOTHING_ELSE.issuperset(table):
        return ()  # as of almost all of ours
    fields = fields_in(properties.raw)
    pairs = [(_BACK.get(name, name), bytes_of(value)) for name, value in table.items() if name not in _NOT_THEIRS]
    typed, deaths = dict(_typed(fields)), kept_deaths(fields, source)
    if kept or typed or deaths:
        pairs.append((TYPED, packed(kept, typed, deaths)))
    return tuple(pairs)


_NOTHING_ELSE = frozenset((OURS, STORY, *_COUNTS))


def _typed(fields: Mapping[bytes, Field]) -> Iterator[tuple[bytes, Field]]:
    """The headers whose type, or name, a text and its value do not tell."""
    for raw, field in fields.items():
        name = text_of(raw)
        is_plain = field_of(text_or_bytes(field[5:])) == field and name.encode() == raw and name != TYPED
        if name not in _NOT_THEIRS and not is_plain:
            yield _BACK[name].encode() if name in _BACK else raw, field
