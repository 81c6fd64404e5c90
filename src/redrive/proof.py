"""How something proves that we wrote it: HMAC-SHA256 by a key of this process (flow/signing.py loads them)."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct


class Ring(Struct, frozen=True):
    """What a process signs with, and what it believes."""

    signs: bytes = b""  # empty: no key is loaded
    accepts: tuple[bytes, ...] = ()
    believes_unsigned: bool = True
    is_unread: bool = False  # there are keys, and they could not be read yet: nothing can be told

    def sign(self, *parts: Any) -> str:
        """The signature of these; empty without a key."""
        return _signature(self.signs, parts) if self.signs else ""

    def believes(self, signature: str, *parts: Any) -> bool:
        """Whether one of our keys made that signature for these."""
        if not self.signs:
            return not self.is_unread
        if not signature:
            return self.believes_unsigned
        given = signature.encode("utf-8", "replace")
        return any(hmac.compare_digest(_signature(key, parts).encode(), given) for key in self.accepts)


class Process:
    """The keys of this process; its ring is replaced as a whole."""

    ring = Ring()
    given = ""  # the setting
    known: WeakKeyDictionary[object, tuple[bytes, ...]] = WeakKeyDictionary()  # noqa: RUF012  # those a store has now
    read: WeakKeyDictionary[object, float] = WeakKeyDictionary()  # noqa: RUF012  # when, by store


def ring() -> Ring:
    """The ring of this process."""
    return Process.ring


def forget() -> None:
    """As if no key had ever been loaded: for tests."""
    Process.ring, Process.given = Ring(), ""
    Process.known, Process.read = WeakKeyDictionary(), WeakKeyDictionary()


def _signature(key: bytes, parts: Sequence[Any]) -> str:
    digest = hmac.digest(key, msgspec.json.encode(parts), "sha256")
    return urlsafe_b64encode(digest[:24]).decode()
