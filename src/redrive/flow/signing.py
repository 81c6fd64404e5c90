"""The key by which a message that comes back proves that we sent it: HMAC-SHA256, one key for all processes of a store.

    made       by the first process that needs it, compare-and-set, in the document `keys/lineage` of the store; or
               given as the setting `lineage.key`
    rotated    `redrive keys rotate` adds one. It is accepted as soon as a process has read it, and signs when every
               process has had the time to; the old ones are accepted until they are dropped (`--drop-old`)
    unsigned   what was on its way before there was a key is believed for a week, if the store had letters when the key
               was made. In a new store it never is

A process has one ring. Where none was loaded, as in the worker of somebody else that has no store, nothing is signed
and nothing can be checked.
"""

from __future__ import annotations

import asyncio
import secrets
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from redrive.forensics.query import Query
from redrive.proof import Process, Ring
from redrive.stores.base import Store

KIND, ID = "keys", "lineage"
EVERY = timedelta(minutes=1)
"""How often a process reads the keys anew."""
_SETTLED = 3 * EVERY
_GRACE = timedelta(days=7)


class Key(Struct, frozen=True):
    """A secret, and since when it is known."""

    secret: str
    made_at: datetime


class Keys(Struct, frozen=True):
    """The document, the newest key last."""

    keys: tuple[Key, ...]
    unsigned_until: datetime | None = None


def use_key(text: str) -> None:
    """Sign with a key that somebody has set, instead of that of the store."""
    Process.given = text or Process.given


def go_without() -> None:
    """Begin though the store cannot be asked: with the key that was set, if there is one. Without one, what came back
    is neither believed nor attempted until the keys are read."""
    if Process.given:
        key = Process.given.encode()
        Process.ring = Ring(key, _accepted(), False)
    elif not Process.ring.signs:
        Process.ring = Ring(is_unread=True)


async def load_keys(store: Store, now: datetime) -> None:
    """Read the keys of that store, and make the first one; nothing, if they were read within the last minute. Raises
    StoreUnavailable."""
    at = asyncio.get_running_loop().time()
    if at - Process.read.get(store, -1e9) < EVERY.total_seconds():
        return
    keys = await _kept(store, now)
    Process.known[store] = tuple(key.secret.encode() for key in keys.keys)
    Process.ring = _ring_of(keys, now)
    Process.read[store] = at


async def rotate(store: Store, now: datetime, *, drop_old: bool = False) -> int:
    """Add a key, or drop all but the newest; returns how many there are."""
    while True:
        await _kept(store, now)
        document = await store.documents.get(KIND, ID)
        if document is None:
            continue
        keys = msgspec.convert(document.body, Keys)
        after = Keys(keys.keys[-1:]) if drop_old else Keys((*keys.keys, _made(now)), keys.unsigned_until)
        if await store.documents.put(KIND, ID, msgspec.to_builtins(after), expect=document.version):
            return len(after.keys)


async def _kept(store: Store, now: datetime) -> Keys:
    while (document := await store.documents.get(KIND, ID)) is None:
        had_letters = await store.letters.count(Query()) > 0
        first = Keys((_made(now),), now + _GRACE if had_letters else None)
        if await store.documents.put(KIND, ID, msgspec.to_builtins(first), expect=0):
            return first  # else another process was first
    return msgspec.convert(document.body, Keys)


def _made(now: datetime) -> Key:
    return Key(secrets.token_urlsafe(32), now)


def _ring_of(keys: Keys, now: datetime) -> Ring:
    settled = [key for key in keys.keys if now - key.made_at >= _SETTLED] or keys.keys[:1]
    unsigned = keys.unsigned_until is not None and now < keys.unsigned_until
    return Ring((Process.given or settled[-1].secret).encode(), _accepted(), unsigned)


def _accepted() -> tuple[bytes, ...]:
    """The key that was set, and those that the stores of this process had when they were read last: one that was
    dropped there is believed no more."""
    given = (Process.given.encode(),) if Process.given else ()
    return tuple(dict.fromkeys((*given, *(key for keys in Process.known.values() for key in keys))))
