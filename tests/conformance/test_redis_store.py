"""Redis keeps every promise of a store, with entries for others beside its letters and without."""

from __future__ import annotations

import uuid
from datetime import datetime

import msgspec
import pytest

from redrive.drivers.redis import SCHEMES, Link
from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.registry import open_store
from redrive.stores.base import Store
from redrive.stores.redis import RedisStore
from redrive.stores.redis.entries import EntryShape
from redrive.testing.stores import StoreBackend, StoreSuite
from tests.servers.redis import Redis


class JobShape:
    """What another program could want to read: the body as it came, where it is JSON."""

    def encode(self, letter: Letter) -> bytes:
        message = letter.message
        entry = {"job": message.id, "queue": message.source, "reason": letter.last.message, "data": _data(message.body)}
        return msgspec.json.encode(entry)

    def moved_at(self, letter: Letter) -> datetime:
        return letter.updated_at


def _data(body: bytes) -> object:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return msgspec.Raw(body)


class RedisBackend(StoreBackend):
    def __init__(self, url: str, shape: EntryShape | None = None) -> None:
        self.name = f"suite-{uuid.uuid4().hex}"
        self.server = url
        self.url = f"{url}?prefix={self.name}"
        self.shape = shape
        self.link = Link(url)

    async def open(self) -> Store:
        entries = None if self.shape is None else f"{self.name}:dlq"
        return RedisStore(self.url, shape=self.shape, entries=entries)

    async def aclose(self) -> None:
        """Every key with our name in it goes; many tests share the server."""
        if keys := await self.link.command("KEYS", f"*{self.name}*"):
            await self.link.command("UNLINK", *keys)
        await self.link.aclose()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_url_of_redis_is_a_store(scheme: str) -> None:
    store = open_store(f"{scheme}://localhost:1/?prefix=shop")
    assert isinstance(store, RedisStore)
    with pytest.raises(StoreUnavailable, match="localhost:1"):
        await store.letters.count(Query())
    await store.aclose()


class TestRedis(StoreSuite):
    @pytest.fixture
    def backend(self, redis_server: Redis) -> StoreBackend:
        return RedisBackend(redis_server.url)


class TestRedisWithEntries(StoreSuite):
    @pytest.fixture
    def backend(self, redis_server: Redis) -> StoreBackend:
        return RedisBackend(redis_server.url, JobShape())
