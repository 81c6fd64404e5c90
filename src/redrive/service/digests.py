"""What is to be written, as one digest: a second person approves exactly that."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from redrive.model import Headers, LetterId


def digest_of(changes: Iterable[tuple[LetterId, int, bytes, Headers]]) -> str:
    """SHA-256 of the letters, the versions that they have, and what they are to become."""
    digest = hashlib.sha256()
    for change in changes:
        digest.update(hashlib.sha256(msgspec.msgpack.encode(change)).digest())
    return digest.hexdigest()
