"""Why a ticket is dead, as a field of its own value: `dlq_metadata`."""

from __future__ import annotations

from typing import Any

import msgspec

from redrive.untrusted import UNREADABLE, read_json

METADATA = "dlq_metadata"


def with_metadata(body: bytes, said: dict[str, Any]) -> bytes:
    """A JSON object with one field more; its own bytes stay as they are, and `metadata_in` finds them again."""
    value = read_json(body)
    if METADATA in value or not value:
        return msgspec.json.encode({**value, METADATA: said})
    return body.rstrip()[:-1] + _tail(said)


def metadata_in(body: bytes) -> tuple[bytes, dict[str, Any]] | None:
    """The original value and its metadata, where a value has both."""
    if METADATA.encode() not in body:
        return None
    try:
        value = read_json(body)
    except UNREADABLE:
        return None
    said = value.pop(METADATA, None) if isinstance(value, dict) else None
    if not isinstance(said, dict):
        return None
    tail = _tail(said)
    return body[: -len(tail)] + b"}" if body.endswith(tail) else msgspec.json.encode(value), said


def _tail(said: dict[str, Any]) -> bytes:
    return b',"%s":%s}' % (METADATA.encode(), msgspec.json.encode(said))
