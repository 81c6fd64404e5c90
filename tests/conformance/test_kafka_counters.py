"""Counters of attempts: the same promises in memory, in SQLite and in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from redis import Redis as Client

from redrive.errors import TransportUnavailable
from redrive.transports.kafka.counters import Counters, MemoryCounters, RedisCounters, SqliteCounters, open_counters
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis

PATTERN = "ticket:retry_count:{}"


@pytest_asyncio.fixture(params=["memory", "sqlite", "redis"])
async def counters(request: pytest.FixtureRequest, redis_server: Redis, tmp_path: Path) -> AsyncIterator[Counters]:
    made: Counters
    match request.param:
        case "memory":
            made = MemoryCounters()
        case "sqlite":
            made = SqliteCounters(f"sqlite:///{tmp_path}/counters.db")
        case _:
            made = RedisCounters(redis_server.url, pattern=f"counters-{tmp_path.name}:{{}}")
    yield made
    await made.aclose()


async def test_counts_are_what_was_put_last_and_zero_is_forgotten(counters: Counters) -> None:
    assert list(await counters.get(["a", "b", "'; --", "🎫"])) == [0, 0, 0, 0]
    await counters.put({"a": 1, "'; --": 2, "🎫": 3})
    await counters.put({"a": 2, "b": 1})
    assert list(await counters.get(["🎫", "a", "b", "'; --"])) == [3, 2, 1, 2]
    await counters.put({"a": 0, "b": 1})
    assert list(await counters.get(["a", "b"])) == [0, 1]
    assert list(await counters.get([])) == []
    assert not counters.is_empty


async def test_in_redis_they_are_the_keys_of_the_contract_and_expire(redis_server: Redis) -> None:
    counters, client = RedisCounters(redis_server.url, pattern=PATTERN), Client.from_url(redis_server.url)
    await counters.put({"t-1": 2})
    assert client.get("ticket:retry_count:t-1") == b"2"
    assert timedelta(days=6, hours=23).total_seconds() < client.ttl("ticket:retry_count:t-1") <= 7 * 86400
    client.incr("ticket:retry_count:t-1")
    assert list(await counters.get(["t-1"])) == [3]
    client.set("ticket:retry_count:t-2", "nonsense")
    assert list(await counters.get(["t-2"])) == [0]
    await counters.put({"t-1": 0, "t-2": 0})
    assert client.exists("ticket:retry_count:t-1", "ticket:retry_count:t-2") == 0
    await counters.aclose()
    client.close()


async def test_in_sqlite_they_are_shared_and_expire(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/counters.db"
    one, two = SqliteCounters(url), SqliteCounters(url)
    await one.put({"a": 2})
    assert list(await two.get(["a"])) == [2]
    late = SqliteCounters(url, ttl=timedelta(microseconds=1))
    await asyncio.sleep(0.001)
    assert list(await late.get(["a"])) == [0]
    for each in (one, two, late):
        await each.aclose()


async def test_a_redis_that_is_away_is_said_to_be(start_server: StartsServer) -> None:
    redis = start_server(Redis)
    counters = open_counters(f"{redis.url}?socket_timeout=1")
    redis.kill9()
    with pytest.raises(TransportUnavailable, match="redis"):
        await counters.get(["a"])
    with pytest.raises(TransportUnavailable, match="redis"):
        await counters.put({"a": 1})
    await counters.aclose()
