"""What is to be written, or was shown, as one digest. It is keyed: who sees it and not the key can try no guesses."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import msgspec

from redrive.model import Headers, LetterId


def digest_of(changes: Iterable[tuple[LetterId, int, bytes, Headers]], key: bytes) -> str:
    """HMAC-SHA-256 of the letters, the versions that they have, and what they are to become: a second person approves
    exactly that."""
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for change in changes:
        digest.update(hashlib.sha256(msgspec.msgpack.encode(change)).digest())
    return digest.hexdigest()


def digest_of_body(body: bytes, key: bytes) -> str:
    """HMAC-SHA-256 of a body that was shown: on a plain digest all values of a short secret are soon tried."""
    return hmac.digest(key, body, "sha256").hex()
