"""The properties of a message, as pika has them but for two things: headers keep the types that they came with, and
whatever headers hold, reading them raises nothing.

pika reads a float as an int, every integer as one that is written with 32 bits, and ends the connection at a timestamp
that Python does not know, or at tables too deep in each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from redrive.errors import MissingExtra
from redrive.transports.rabbitmq.fields import Name, table_of, values_in

try:
    from pika import BasicProperties
except ImportError as error:  # pragma: no cover
    raise MissingExtra("RabbitMQ", "rabbitmq") from error

_NAMES = (
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id"),
)
_FLAGS = {name: 1 << 15 - number for number, name in enumerate(_NAMES)}
_BYTE, _SHORT, _LONG, _LONGLONG = (struct.Struct(form) for form in (">B", ">H", ">I", ">Q"))
_MOST_PROPERTIES = 9 * 256 + 16  # bytes without headers
_AROUND, _WIDEST = 6, 4  # bytes of a header beside its name and text, and of a character
_MORE = 1  # the flag that says that more flags follow


class Properties(BasicProperties):  # type: ignore[misc]
    """Properties that were read, or are to be written.

    raw   the table of headers as it came, without its length
    """

    raw: bytes = b""

    def decode(self, encoded: bytes, offset: int = 0) -> Properties:
        flags, offset = _flags_at(encoded, offset)
        for name, read in _plan(flags):
            value, offset = read(encoded, offset)
            if name == "headers":
                self.raw, value = value, values_in(value)
            setattr(self, name, value)
        return self

    def encode(self) -> list[bytes]:
        flags, pieces = 0, [b""]
        for name in _NAMES:
            value = getattr(self, name)
            if value is not None:
                flags |= _FLAGS[name]
                pieces.append(_WRITE.get(name, _short_text)(value))
        pieces[0] = _SHORT.pack(flags)
        return pieces


def size_of(properties: BasicProperties) -> int:
    """How many bytes they take. All have to fit into one frame: the broker ends the connection of who sends more."""
    return sum(map(len, properties.encode()))


def is_small(properties: BasicProperties, capacity: int) -> bool:
    """Whether it can be seen without encoding them that they have capacity."""
    size = _MOST_PROPERTIES
    for name, value in (properties.headers or {}).items():
        if not isinstance(value, str | bytes):
            return False
        size += _AROUND + _WIDEST * (len(name) + len(value))
    return size < capacity


def _flags_at(encoded: bytes, offset: int) -> tuple[int, int]:
    flags = following = int(_SHORT.unpack_from(encoded, offset)[0])
    offset += 2
    while following & _MORE:  # nobody has ever used one of those
        following = int(_SHORT.unpack_from(encoded, offset)[0])
        offset += 2
    return flags, offset


@cache
def _plan(flags: int) -> tuple[tuple[str, Callable[[bytes, int], tuple[Any, int]]], ...]:
    """Which properties follow these flags, and how each is read."""
    return tuple((name, _READ.get(name, _text_at)) for name in _NAMES if flags & _FLAGS[name])


def _text_at(encoded: bytes, offset: int) -> tuple[str | bytes, int]:
    end = offset + 1 + encoded[offset]
    text = encoded[offset + 1 : end]
    try:
        return text.decode(), end
    except UnicodeDecodeError:
        return text, end


def _table_at(encoded: bytes, offset: int) -> tuple[bytes, int]:
    end = offset + 4 + int(_LONG.unpack_from(encoded, offset)[0])
    return encoded[offset + 4 : end], end


def _short_text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    if len(raw) > 255:
        raise ValueError(f"a property has at most 255 bytes, not {len(raw):,}")
    return bytes((len(raw),)) + raw


def _table(values: Mapping[Name, Any]) -> bytes:
    table = table_of(values)
    return _LONG.pack(len(table)) + table


_READ: dict[str, Callable[[bytes, int], tuple[Any, int]]] = {
    "headers": _table_at,
    "delivery_mode": lambda encoded, offset: (encoded[offset], offset + 1),
    "priority": lambda encoded, offset: (encoded[offset], offset + 1),
    "timestamp": lambda encoded, offset: (_LONGLONG.unpack_from(encoded, offset)[0], offset + 8),
}
_WRITE: dict[str, Callable[[Any], bytes]] = {
    "headers": _table,
    "delivery_mode": _BYTE.pack,
    "priority": _BYTE.pack,
    "timestamp": _LONGLONG.pack,
}
