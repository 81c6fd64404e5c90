"""Letters in Redis: what an entry costs, recording beside a bare pipeline, and finding among 100,000."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from itertools import product
from typing import Any

from msgspec.structs import replace
from tests.servers.redis import Redis

from benchmarks.harness import Cell, Measured, Scale, Target, async_rate, in_loop, percentiles, say, side_by_side
from benchmarks.samples import BATCH, batches, fresh
from redrive.clock import microseconds
from redrive.drivers.redis import Link
from redrive.forensics.query import Query
from redrive.model import Category, Letter, State
from redrive.stores.redis import RedisStore
from redrive.stores.shape import NATIVE
from redrive.systems.email.shape import EmailShape

_DLQ = "email:send:dlq"
Ask = Callable[[RedisStore, Link, int], Awaitable[object]]


@cache
def _server() -> Redis:
    """One for all cells, with AOF everysec; it ends with this process."""
    return Redis().start()


@asynccontextmanager
async def _empty() -> AsyncIterator[Link]:
    link = Link(f"{_server().url}?socket_timeout=60")
    await link.command("FLUSHALL")
    try:
        yield link
    finally:
        await link.aclose()


async def _fill(store: RedisStore, letters: Sequence[Letter]) -> None:
    for batch in batches(letters):
        await store.letters.record(batch)


# -- memory ----------------------------------------------------------------------------------------------------------


def memory(scale: Scale) -> Measured:
    """Bytes of Redis for each of 10,000 entries of the DLQ of e-mail, without the bytes of the letter itself (body,
    headers, every failure with its stack). Entry, indexes and counters are in it."""
    return in_loop(_memory(scale.of(10_000, 500)))


async def _memory(count: int) -> Measured:
    week, shape = timedelta(days=7), EmailShape()
    letters = [replace(one, state=State.EXHAUSTED, expires_at=one.created_at + week) for one in fresh(0, count)]
    async with _empty() as link:
        store = RedisStore(_server().url, shape=shape, entries=_DLQ)
        await store.check()
        await store.letters.count(Query())
        before = await _used(link)
        await _fill(store, letters)
        used = (await _used(link) - before) / count
        await store.aclose()
    data = sum(len(NATIVE.encode(one)) for one in letters) / count
    entry = sum(len(shape.encode(one)) for one in letters) / count
    return Measured(
        redrive=used - data,
        peers={},
        details={"bytes": round(used), "letter": round(data), "entry": round(entry), "over_entry": round(used - entry)},
        settings={"letters": count, "failures": 3},
    )


async def _used(link: Link) -> int:
    """Without what connections and the AOF's buffer take."""
    stats = await link.command("MEMORY", "STATS")
    named = {key.decode() if isinstance(key, bytes) else key: value for key, value in _pairs(stats)}
    around = ("clients.normal", "aof.buffer", "lua.caches")
    return int(named["total.allocated"]) - sum(int(named[name]) for name in around)


def _pairs(stats: Any) -> Any:
    return stats.items() if isinstance(stats, dict) else zip(stats[::2], stats[1::2], strict=True)


# -- recording -------------------------------------------------------------------------------------------------------


def record(scale: Scale) -> Measured:
    """Letters a second in batches of 500, beside a pipeline of HSET and ZADD of the same letters, encoded beforehand:
    no second index, no counters, no look whether they are known."""
    letters = list(fresh(0, scale.of(20_000, 1_000)))
    encoded = [(one.id, NATIVE.encode(one), microseconds(one.created_at)) for one in letters]
    figures = side_by_side(
        {
            "redrive": lambda: in_loop(_record(letters, entries=False)),
            "with entries": lambda: in_loop(_record(letters, entries=True)),
            "pipeline of HSET, ZADD": lambda: in_loop(_bare(encoded)),
        },
        scale.rounds,
    )
    return Measured(
        redrive=figures.pop("redrive"),
        details={"with entries of e-mail": round(figures.pop("with entries"))},
        peers=figures,
        settings={"letters": len(letters), "batch": BATCH, "appendfsync": "everysec"},
    )


async def _record(letters: Sequence[Letter], *, entries: bool) -> float:
    async with _empty():
        shaped: dict[str, Any] = {"shape": EmailShape(), "entries": _DLQ} if entries else {}
        store = RedisStore(_server().url, **shaped)
        await store.check()
        try:
            return await async_rate(len(letters), _fill(store, letters))
        finally:
            await store.aclose()


async def _bare(encoded: Sequence[tuple[str, bytes, int]]) -> float:
    async with _empty() as link:

        async def all_of_them() -> None:
            for batch in batches(encoded):
                commands = [
                    command
                    for id, data, at in batch
                    for command in (("HSET", "letters", id, data), ("ZADD", "by-time", at, id))
                ]
                await link.commands(commands)

        return await async_rate(len(encoded), all_of_them())


# -- finding ---------------------------------------------------------------------------------------------------------


def newest(scale: Scale) -> Measured:
    """The newest 50 of a state and category among 100,000, beside ZRANGE of that index and HMGET."""
    return in_loop(_answers(scale, _newest, {"ZRANGE, HMGET": _bare_newest}))


def groups(scale: Scale) -> Measured:
    """All groups with their states and sources among 100,000."""
    return in_loop(_answers(scale, _groups, {}))


async def _answers(scale: Scale, ours: Ask, peers: dict[str, Ask]) -> Measured:
    count, times = scale.of(100_000, 1_000), scale.of(300, 5)
    async with _empty() as link:
        store = RedisStore(_server().url)
        say(f"  writing {count:,} letters")
        await _fill(store, list(fresh(0, count)))
        seconds: dict[str, list[float]] = {name: [] for name in ("redrive", *peers)}
        for number in range(times):
            for name, ask in {"redrive": ours, **peers}.items():
                began = time.perf_counter()
                await ask(store, link, number)
                seconds[name].append(time.perf_counter() - began)
        await store.aclose()
    ms = {name: percentiles(some) for name, some in seconds.items()}
    return Measured(
        redrive=ms["redrive"]["p99"],
        peers={name: ms[name]["p99"] for name in peers},
        details={"ms": ms},
        settings={"letters": count, "asked": times},
    )


_KINDS = list(product((State.PENDING,), Category))


async def _newest(store: RedisStore, _: Link, number: int) -> object:
    state, category = _KINDS[number % len(_KINDS)]
    return await store.letters.search(Query(states=(state,), categories=(category,)), limit=50)


async def _bare_newest(_: RedisStore, link: Link, number: int) -> object:
    """Of one source: a sorted set holds one."""
    state, category = _KINDS[number % len(_KINDS)]
    members = await link.command("ZRANGE", f"{{redrive}}:letters:at:{state}:{category}:orders", 0, 49, "REV")
    return await link.command("HMGET", "{redrive}:letters:documents", *(member[5:] for member in members))


async def _groups(store: RedisStore, _: Link, __: int) -> object:
    return await store.letters.groups(Query())


CELLS = [
    Cell(name="redis_store/memory", unit="bytes", measure=memory, target=Target(most=1024), less_is_better=True),
    Cell(name="redis_store/record", unit="letters/s", measure=record),
    Cell(name="redis_store/newest", unit="ms p99", measure=newest, target=Target(most=20.0), less_is_better=True),
    Cell(name="redis_store/groups", unit="ms p99", measure=groups, target=Target(most=20.0), less_is_better=True),
]
