"""How FastStream carries headers through Redis, which has none: in an envelope around the body.

Version 1 is binary: eight bytes that say what it is, a version, where headers and body begin, how many headers there
are, then each name and value behind its length. Releases before 0.6 had JSON: `{"data": …, "headers": {…}}`.
What is in neither is a body alone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct

from redrive.untrusted import UNREADABLE, read_json

_MAGIC = b"\x89BIN\r\n\x1a\n"
_VERSION = 1
_START = struct.Struct(">HIIH")  # version, where headers begin, where the body begins, number of headers
_COUNTED = len(_MAGIC) + _START.size - 2  # FastStream counts the number of headers among the headers
_LENGTH = struct.Struct(">H")


class Form(StrEnum):
    """What a body travels in."""

    BINARY = "binary"
    JSON = "json"
    BARE = "bare"


class Opened(Struct, frozen=True):
    """A body, its headers, and what both were in."""

    form: Form
    body: bytes
    headers: dict[str, str]


class _Json(Struct):
    data: str
    headers: dict[str, str] = {}


def opened(data: bytes) -> Opened:
    """Never raises: what is no envelope is a body."""
    if data.startswith(_MAGIC):
        try:
            return _binary(data)
        except (struct.error, UnicodeDecodeError):
            return Opened(Form.BARE, data, {})
    try:
        found: _Json = read_json(data, type=_Json)
    except UNREADABLE:
        return Opened(Form.BARE, data, {})
    return Opened(Form.JSON, found.data.encode(), found.headers)


def sealed(form: Form, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Body and headers as a worker opens them. What came bare goes in the binary form: it has headers now."""
    if form is Form.JSON:
        return msgspec.json.encode(_Json(body.decode("utf-8", "replace"), dict(headers)))
    pairs = b"".join(_text(name) + _text(value) for name, value in headers.items())
    start = _START.pack(_VERSION, _COUNTED, _COUNTED + 2 + len(pairs), len(headers))
    return b"".join((_MAGIC, start, pairs, body))


def _binary(data: bytes) -> Opened:
    version, first, body, count = _START.unpack_from(data, len(_MAGIC))
    if version != _VERSION:
        return Opened(Form.BARE, data, {})
    at, headers = first + 2, {}
    for _ in range(count):
        name, at = _text_at(data, at)
        headers[name], at = _text_at(data, at)
    return Opened(Form.BINARY, data[body:], headers)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _text_at(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + 2 + length
    return data[at + 2 : end].decode(), end
