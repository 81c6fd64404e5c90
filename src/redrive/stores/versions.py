"""How a version of a letter's message is written, in every store alike: the facts by themselves, the body as it is."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from redrive.model import Version

_decode = msgspec.msgpack.Decoder(Version).decode


def facts_of(version: Version) -> bytes:
    """All but the body."""
    return msgspec.msgpack.encode(replace(version, body=b""))


def version_in(facts: bytes, body: bytes = b"") -> Version:
    """The version of these facts, with its body if it was read."""
    version = _decode(facts)
    return replace(version, body=body) if body else version
