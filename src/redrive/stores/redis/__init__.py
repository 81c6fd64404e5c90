"""Letters, ledger and documents in Redis, beside the queue that they died in."""

from __future__ import annotations

from redrive.errors import ConfigError
from redrive.forensics.searchable import Searchable
from redrive.stores.base import StoreFeatures
from redrive.stores.redis.access import Access, open_link
from redrive.stores.redis.documents import RedisDocuments
from redrive.stores.redis.entries import EntryShape
from redrive.stores.redis.ledger import RedisLedger
from redrive.stores.redis.letters import RedisLetters
from redrive.stores.redis.series import RedisSeries
from redrive.stores.redis.versions import RedisVersions


class RedisStore:
    """Every change is one script that compares and sets, so any number of processes may share it.

    Letters survive a crash of Redis; with `appendfsync everysec`, a power cut can cost the last second.
    """

    features = StoreFeatures(durable=True, atomic_claims=True, shared=True, counted_groups=True, counted_exactly=True)

    def __init__(
        self, url: str, *, shape: EntryShape | None = None, entries: str | None = None, names: str | None = None
    ) -> None:
        """
        entries   a key: the open letters are members of the sorted set there too, each as `shape` encodes it
        names     what keys begin with: each open letter has one, `names:ID OF ITS MESSAGE`, with the time it came here
        """
        if (shape is None) != (entries is None):
            raise ConfigError("a Redis store takes a shape and the key of its entries together, or neither")
        if entries is not None and (not entries or set(entries) & set("{}")):
            raise ConfigError(f"entries={entries!r}: a key that is not empty and has no braces")
        if names and (entries is None or "+cluster" in url.partition("://")[0]):
            raise ConfigError(f"names={names!r}: it takes entries, and no cluster, where such keys are on other nodes")
        access = Access(open_link(url), entries, names)
        self.url = url
        self.letters = RedisLetters(access, shape)
        self.versions = RedisVersions(access, self.letters)
        self.ledger = RedisLedger(access, self.letters)
        self.documents = RedisDocuments(access)
        self.series = RedisSeries(access)
        self._access = access

    def search_as(self, searchable: Searchable) -> None:
        self.letters.reader.searchable = searchable

    async def check(self) -> None:
        await self._access.check()

    async def aclose(self) -> None:
        await self._access.aclose()


def open_store(url: str) -> RedisStore:
    """`redis://host:6379/0?prefix=redrive`."""
    return RedisStore(url)
