"""What may be shown of bytes that are no text: MessagePack and UTF-16 as what they say, the rest in hex."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

PREVIEW = 64
_AHEAD = 1024  # looked at behind a preview, since a secret may only begin in it
BEHIND_A_KEY = 64  # bytes that are hidden behind a secret key: a format we do not know keeps its value there
_MOST_DECODED = 256 << 10
_STRANGE = dict.fromkeys((*range(32), *range(127, 160)), "\ufffd") | {ord(char): char for char in "\t\n\r"}
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"PK\x03\x04", b"\x78\x9c", b"\x78\xda", b"\x78\x01")


def is_binary(data: bytes) -> bool:
    """Whether it is no text: it has a NUL, or more than a third of it cannot be read."""
    strange = data.decode("utf-8", "replace").translate(_STRANGE).count("\ufffd")
    return b"\0" in data or strange * 3 > len(data)


def wide_text(data: bytes) -> str | None:
    """The text, if it is one in UTF-16 or UTF-32; an odd number of bytes is neither."""
    if len(data) % 2:
        return None
    for mark, encoding in ((b"\xff\xfe\0\0", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return _decoded(data, encoding)
    for start, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        nulls, rest = data[start::2], data[1 - start :: 2]
        if len(data) >= 8 and nulls.count(0) * 10 > len(nulls) * 9 and rest.isascii() and b"\0" not in rest:
            return _decoded(data, encoding)
    return None


def _decoded(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding, "ignore")
    except UnicodeError:
        return None


def unpacked(data: bytes) -> str | None:
    """MessagePack as JSON, if it is an object or a list of it."""
    if len(data) > _MOST_DECODED or not data or not (0x80 <= data[0] <= 0x9F or data[0] in b"\xdc\xdd\xde\xdf"):
        return None
    try:
        return json.dumps(_plain(msgspec.msgpack.decode(data)), ensure_ascii=False)
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError):
        return None


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key if isinstance(key, str) else str(_plain(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case str() | int() | float() | bool() | None:
            return value
    return str(value)


def in_hex(data: bytes, spans: Callable[[str], Iterable[tuple[int, int]]]) -> str:
    """The start of it in hex, with `**` for what may be a secret. What is compressed is not shown: it could be
    decompressed."""
    if data.startswith(_PACKED):
        return "compressed"
    ahead = data[: PREVIEW + _AHEAD]
    hidden: set[int] = set()
    every = range(len(ahead))
    for places in (every, [place for place in every if ahead[place]]):
        text = bytes(ahead[place] for place in places).decode("latin-1")
        for start, end in spans(text):
            hidden.update(_stretch(places, start, end))
    return " ".join("**" if place in hidden else f"{data[place]:02x}" for place in range(min(PREVIEW, len(data))))


def _stretch(places: Sequence[int], start: int, end: int) -> range:
    """The bytes from the first to the last of a span; those in between, too."""
    if start >= len(places):
        return range(0)
    return range(places[start], places[min(end, len(places)) - 1] + 1)


def behind(end: int) -> tuple[int, int]:
    """What is hidden behind a secret key."""
    return end, end + BEHIND_A_KEY
