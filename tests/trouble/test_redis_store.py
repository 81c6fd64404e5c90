"""A Redis that dies, forgets its scripts, is full or out of reach: letters are whole, or not there."""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from redrive import Policy
from redrive.drivers.redis import Link
from redrive.errors import ConfigError, StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.stores.redis import RedisStore
from redrive.telemetry.events import BackendDown
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import counted, members, members_of
from redrive.testing.waiting import until
from tests.conformance.test_redis_store import JobShape
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis
from tests.servers.toxiproxy import Toxiproxy
from tests.trouble.helpers import ROOT, Told, depth, make_app, until_empty, until_letters, working

ALL = Query()
LATER = START + timedelta(hours=1)


@asynccontextmanager
async def opened(url: str, *, entries: bool = False) -> AsyncIterator[RedisStore]:
    store = RedisStore(url, shape=JobShape(), entries=f"{uuid.uuid4().hex}:dlq") if entries else RedisStore(url)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def redis(url: str) -> AsyncIterator[Link]:
    link = Link(url)
    try:
        yield link
    finally:
        await link.aclose()


def some(number: int, size: int = 200) -> list[Letter]:
    return [
        make_letter(make_message(id=f"m-{n}", body=b'"%s"' % (b"x" * size)), group=f"g-{n % 3}") for n in range(number)
    ]


async def everything(store: RedisStore) -> list[Letter]:
    return list((await store.letters.search(ALL, limit=100_000, oldest_first=True)).letters)


async def is_whole(store: RedisStore) -> list[Letter]:
    """All letters, after looking whether indexes and counters say the same."""
    letters = await everything(store)
    assert await store.letters.count(ALL) == len(letters)
    assert counted(await store.letters.tallies()).total() == len(letters)
    assert members_of(await store.letters.groups(ALL)) == members(letters)
    by_group = [await store.letters.search(Query(groups=(group,)), limit=100_000) for group in members(letters)]
    assert sum(len(page.letters) for page in by_group) == len(letters)
    return letters


@pytest.mark.parametrize("entries", [False, True])
async def test_letters_survive_a_killed_redis_and_the_store_comes_back_by_itself(
    start_server: StartsServer, entries: bool
) -> None:
    server = start_server(Redis)
    async with opened(server.url, entries=entries) as store:
        letters = some(700)
        await store.letters.record(letters)
        await store.ledger.freeze("r", ALL, now=START)
        server.kill9()
        with pytest.raises(StoreUnavailable, match="redis://"):
            await store.letters.record(letters)
        with pytest.raises(StoreUnavailable):
            await store.check()
        server.start()
        assert await is_whole(store) == letters
        await store.letters.record(letters)
        assert await is_whole(store) == letters
        assert await store.ledger.freeze("r", ALL, now=START) == 700


async def test_a_redis_that_forgot_its_scripts(redis_server: Redis) -> None:
    url = f"{redis_server.url}?prefix={uuid.uuid4().hex}"
    async with opened(url) as store, redis(redis_server.url) as link:
        for number, letter in enumerate(some(5)):
            await link.command("SCRIPT", "FLUSH")
            await store.letters.record([letter])
            await store.letters.move([letter.id], expect=[State.PENDING], to=State.EXHAUSTED, now=LATER)
            assert len(await everything(store)) == number + 1


async def test_a_full_redis_takes_nothing_new_and_lets_go_of_what_is_there(start_server: StartsServer) -> None:
    server = start_server(Redis)
    async with opened(server.url, entries=True) as store, redis(server.url) as link:
        letters = some(300)
        await store.letters.record(letters)
        await link.command("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(StoreUnavailable, match="memory is full"):
            await store.letters.record([make_letter(make_message(id="new"))])
        with pytest.raises(StoreUnavailable, match="memory is full"):
            await store.check()
        assert await is_whole(store) == letters, "nothing is half written, and all of it can be read"
        done = [letter.id for letter in letters[:100]]
        assert len(await store.letters.move(done, expect=[State.PENDING], to=State.RESOLVED, now=LATER)) == 100
        assert len(await store.letters.prune(Query(states=(State.RESOLVED,)), limit=1000)) == 100
        claim = await store.letters.claim(ALL, to=State.RETRYING, owner="me", now=LATER, until=LATER, limit=5)
        assert len(claim) == 5
        await link.command("CONFIG", "SET", "maxmemory", 0)
        await store.letters.record([make_letter(make_message(id="new"))])
        assert len(await is_whole(store)) == 201


async def test_a_message_that_a_full_redis_cannot_bury_stays_with_its_transport(
    start_server: StartsServer, tmp_path: Path
) -> None:
    server = start_server(Redis)
    app = make_app(tmp_path, store=RedisStore(server.url))
    told = Told(app)

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: int) -> None:
        raise ValueError("to be buried")

    async with app, redis(server.url) as link:
        await app.store.check()
        await link.command("CONFIG", "SET", "maxmemory", 1)
        async with working(app):
            await app.send("orders", 1, id="order-1")
            await until(lambda: len(told.of(BackendDown)) >= 1, what="the store refused the letter")
            assert await depth(app) == 1
            await link.command("CONFIG", "SET", "maxmemory", 0)
            [letter] = await until_letters(app, 1)
            await until_empty(app)
        assert (letter.message.id, len(letter.failures)) == ("order-1", 1)


@pytest.mark.parametrize("after", [200, 20_000, 100_000])
async def test_a_connection_that_breaks_in_the_middle_of_record(
    redis_server: Redis, toxiproxy_server: Toxiproxy, after: int
) -> None:
    """Upstream, so many bytes of the letters go through, then the connection is cut. A repeat changes nothing."""
    prefix = uuid.uuid4().hex
    letters = some(400)
    proxy = toxiproxy_server.proxy(redis_server.address)
    async with opened(f"redis://{proxy.address}/0?prefix={prefix}&socket_timeout=30") as store:
        await store.check()
        proxy.add("limit_data", stream="upstream", bytes=after)
        with pytest.raises(StoreUnavailable):
            await store.letters.record(letters)
        proxy.remove("limit_data")
        for _ in range(2):
            await store.letters.record(letters)
            assert await is_whole(store) == letters


async def test_an_answer_that_never_came(redis_server: Redis, toxiproxy_server: Toxiproxy) -> None:
    """Downstream: the letters are written, and their writer does not learn it."""
    prefix = uuid.uuid4().hex
    letters = some(50)
    proxy = toxiproxy_server.proxy(redis_server.address)
    async with opened(f"redis://{proxy.address}/0?prefix={prefix}&socket_timeout=30") as store:
        await store.check()
        await store.letters.record(letters[:1])
        proxy.add("limit_data", stream="downstream", bytes=1)
        with pytest.raises(StoreUnavailable):
            await store.letters.record(letters)
        proxy.remove("limit_data")
        await store.letters.record(letters)
        assert await is_whole(store) == letters


_CLAIMER = """
import asyncio, sys
from datetime import timedelta
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.redis import RedisStore
from redrive.testing.clock import START

async def main(url, owner):
    store = RedisStore(url)
    print("ready", flush=True)
    sys.stdin.readline()
    query = Query(states=(State.PENDING,), sources=("orders",), due=START)
    while True:
        some = await store.letters.claim(
            query, to=State.RETRYING, owner=owner, now=START, until=START + timedelta(hours=1), limit=7
        )
        if not some:
            break
        print(*(one.id for one in some), flush=True)
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_that_claim_never_have_the_same_letter(redis_server: Redis) -> None:
    url = f"{redis_server.url}?prefix={uuid.uuid4().hex}"
    async with opened(url) as store:
        letters = [make_letter(make_message(id=f"m-{n}"), next_retry_at=START) for n in range(400)]
        await store.letters.record(letters)
        both = [await _process(_CLAIMER, url, owner) for owner in ("ann", "bob")]
        for one in both:
            assert one.stdout is not None
            assert (await one.stdout.readline()).strip() == b"ready"
        said = await asyncio.gather(*(one.communicate(b"go\n") for one in both))
        ids = [id for out, _ in said for id in out.decode().split()]
        assert sorted(ids) == sorted(letter.id for letter in letters), "each once"
        held = {one.id: one.owner for one in await everything(store)}
        assert set(held.values()) <= {"ann", "bob"}


_WRITER = """
import asyncio, sys
from redrive.stores.redis import RedisStore
from tests.trouble.test_redis_store import some

async def main(url):
    store = RedisStore(url)
    letters = some(5000)
    for start in range(0, len(letters), 50):
        await store.letters.record(letters[start : start + 50])
        print("recorded", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_writer_that_is_killed_leaves_no_half_letter(redis_server: Redis) -> None:
    url = f"{redis_server.url}?prefix={uuid.uuid4().hex}"
    async with opened(url) as store:
        writer = await _process(_WRITER, url)
        assert writer.stdout is not None
        for _ in range(3):
            assert (await writer.stdout.readline()).strip() == b"recorded"
        writer.send_signal(signal.SIGKILL)
        await writer.communicate()
        found = await is_whole(store)
        assert len(found) >= 150, "what it was told is durable"


@pytest.mark.parametrize(
    ("setting", "line"),
    [(("maxmemory-policy", "allkeys-lru"), "maxmemory-policy noeviction"), (("appendonly", "no"), "appendonly yes")],
)
async def test_a_redis_that_could_lose_letters_is_refused(
    start_server: StartsServer, setting: tuple[str, str], line: str
) -> None:
    server = start_server(Redis)
    async with redis(f"{server.url}?checks=off") as link:
        await link.command("CONFIG", "SET", *setting)
    async with opened(server.url) as store:
        for call in (store.check(), store.letters.record(some(1)), store.letters.get("x")):
            with pytest.raises(ConfigError, match=line):
                await call
    async with opened(f"{server.url}?checks=off") as store:
        await store.letters.record(some(1))


async def test_two_who_freeze_one_replay_at_once_freeze_one_selection(redis_server: Redis) -> None:
    url = f"{redis_server.url}?prefix={uuid.uuid4().hex}"
    async with opened(url) as store, opened(url) as other:
        await store.letters.record(some(1200))
        queries = (Query(groups=("g-0",)), ALL)
        frozen = [one.ledger.freeze("r", query, now=START) for one, query in product((store, other), queries)]
        [number] = set(await asyncio.gather(*frozen))
        assert number in (400, 1200)
        assert sum((await store.ledger.tally("r")).values()) == number
        async with redis(redis_server.url) as link:
            assert await link.command("KEYS", f"*{url.rpartition('=')[2]}*draft*") == []


async def _process(script: str, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, cwd=ROOT, stdin=pipe, stdout=pipe
    )
