"""What a message that somebody else published had, and headers of ours have no type for. It is in one header of its
letter, so that it goes back as it came."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from redrive.model import Headers, Message
from redrive.transports.rabbitmq.fields import Field, Malformed, field_of, table_in
from redrive.untrusted import UNREADABLE

TYPED = "redrive-amqp"
KEPT = ("content_type", "content_encoding", "reply_to", "type", "user_id", "app_id", "priority")
"""The properties that a copy keeps."""
_pack = msgspec.msgpack.Encoder()


class Came(Struct, frozen=True):
    """What a message that somebody else published had beside its headers."""

    headers: Headers
    kept: dict[str, Any] = {}  # properties
    typed: dict[bytes, Field] = {}  # headers that are not simply text, as they came
    deaths: dict[bytes, Field] = {}


def as_it_came(headers: Headers) -> Came:
    place = next((place for place in range(len(headers) - 1, -1, -1) if headers[place][0] == TYPED), None)
    if place is None:
        return Came(headers)
    return _unpacked(headers[place][1], headers[:place] + headers[place + 1 :])  # ours is the last of that name


def packed(kept: Mapping[str, Any], typed: Mapping[bytes, Field], deaths: Mapping[bytes, Field]) -> bytes:
    """What headers of ours have no type for, so that it goes back as it came."""
    return _pack.encode([kept, {}, bytes(field_of(typed)), bytes(field_of(deaths))])


def _unpacked(data: bytes, headers: Headers) -> Came:
    """What `packed` made, now or in an older version, which kept only values."""
    try:
        kept, values, *fields = msgspec.msgpack.decode(data)
        known = {name: value for name, value in kept.items() if name in KEPT}
        typed, deaths = [table_in(Field(field[:])) for field in fields] or [_fields_of(values), {}]
        return Came(headers, known, typed, deaths)
    except (*UNREADABLE, TypeError, AttributeError):
        return Came(headers)


def _fields_of(values: Mapping[str, Any]) -> dict[bytes, Field]:
    found = {}
    for name, value in values.items():
        with suppress(Malformed):
            found[name.encode()] = field_of(value)
    return found


def type_of(message: Message) -> str | None:
    """The `type` that its publisher gave it."""
    found = as_it_came(message.headers).kept.get("type")
    return found if isinstance(found, str) else None


def text_or_escaped(value: str | bytes | None) -> str | None:
    """AMQP calls them text; what is none comes as bytes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def bytes_of(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str)
