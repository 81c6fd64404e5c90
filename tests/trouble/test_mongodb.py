"""MongoDB away, cut off, killed, shared by many: letters are neither lost nor doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from msgspec.structs import replace
from pymongo import AsyncMongoClient

from redrive.errors import ConfigError, StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.mongodb import MongoStore, open_store
from redrive.stores.mongodb.bodies import LARGEST
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from tests.servers.fixtures import StartsServer
from tests.servers.mongodb import MongoDB
from tests.servers.toxiproxy import Toxiproxy

IMPATIENT = "serverSelectionTimeoutMS=500&timeoutMS=1500"


@pytest.fixture
def url(mongodb_server: MongoDB) -> str:
    return f"{mongodb_server.url}trouble?letters=l{uuid4().hex[:12]}"


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[MongoStore]:
    store = open_store(url)
    yield store
    await store.aclose()
    async with AsyncMongoClient[Any](url.partition("?")[0]) as client:
        await client.drop_database("trouble")


async def pieces(url: str) -> int:
    """Of bodies that are too large for their letter."""
    place, _, letters = url.partition("?letters=")
    async with AsyncMongoClient[Any](place) as client:
        return await client["trouble"][f"{letters}_bodies"].count_documents({})


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mongodb://", "mongodb://localhost/redrive"),
        ("mongodb://host:port/x", "mongodb://localhost/redrive"),
        ("mongodb://localhost/data base", "Bad database name"),
        ("mongodb://localhost/x?letters=$", "name of a database or collection"),
    ],
)
async def test_a_url_that_is_none(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        await open_store(url).aclose()


async def test_nobody_at_that_address() -> None:
    store = open_store(f"mongodb://127.0.0.1:1/x?{IMPATIENT}")
    for call in (store.check(), store.letters.record([make_letter()]), store.letters.count(Query())):
        with pytest.raises(StoreUnavailable, match=r"MongoDB \(x\.letters\) is unavailable"):
            await call
    await store.aclose()


async def test_how_long_a_server_is_looked_for_is_what_the_url_says() -> None:
    store = open_store("mongodb://127.0.0.1:1/x?serverSelectionTimeoutMS=300")
    with pytest.raises(StoreUnavailable, match=r"Timeout: 0\.3s"):
        await store.check()
    await store.aclose()


async def test_killed_and_back(start_server: StartsServer) -> None:
    server = start_server(MongoDB)
    store = open_store(f"{server.url}x?{IMPATIENT}")
    letters = [make_letter() for _ in range(20)]
    await store.letters.record(letters[:10])
    await store.letters.claim(Query(), to=State.RETRYING, owner="me", now=START, until=START, limit=5)
    server.kill9()
    with pytest.raises(StoreUnavailable):
        await store.letters.record(letters)
    server.start()
    await store.letters.record(letters)
    await store.check()
    assert await store.letters.count(Query()) == 20
    assert await store.letters.count(Query(owner="me")) == 5
    await store.aclose()


async def test_an_answer_that_gets_lost_is_asked_for_again(
    toxiproxy_server: Toxiproxy, mongodb_server: MongoDB
) -> None:
    """The letters were written, and whoever wrote them does not know it."""
    proxy = toxiproxy_server.proxy(mongodb_server.address)
    store = open_store(f"mongodb://{proxy.address}/trouble?letters=l{uuid4().hex[:12]}&{IMPATIENT}")
    await store.check()
    message = make_message()
    letters = [make_letter(message, make_failure(attempt=1)), *(make_letter() for _ in range(50))]
    proxy.add("limit_data", bytes=0)  # what MongoDB answers reaches nobody
    with pytest.raises(StoreUnavailable):
        await store.letters.record(letters)
    proxy.remove("limit_data")
    await store.letters.record(letters)
    await store.letters.record([make_letter(message, make_failure(attempt=2))])
    assert await store.letters.count(Query()) == 51
    got = await store.letters.get(letters[0].id)
    assert got is not None
    assert [failure.attempt for failure in got.failures] == [1, 2]
    await store.aclose()


async def test_two_processors_never_claim_one_letter(store: MongoStore, url: str) -> None:
    await store.letters.record([make_letter(next_retry_at=START) for _ in range(300)])
    others = [open_store(url) for _ in range(3)]
    due = Query(due=START, states=(State.PENDING,))  # its own, in its hands, it could claim again

    async def take(number: int, through: MongoStore) -> list[str]:
        mine: list[str] = []
        while True:
            until = START + timedelta(hours=1)
            some = await through.letters.claim(
                due, to=State.RETRYING, owner=f"p-{number}", now=START, until=until, limit=20
            )
            if not some and not await through.letters.count(Query(states=(State.PENDING,))):
                return mine
            mine += [one.id for one in some]

    taken = await asyncio.gather(*(take(number, one) for number, one in enumerate([store, *others])))
    ids = [id for some in taken for id in some]
    assert len(ids) == len(set(ids)) == 300
    for other in others:
        await other.aclose()


async def test_a_replay_that_two_freeze_at_once_has_one_selection(store: MongoStore, url: str) -> None:
    other = open_store(url)
    await store.letters.record([make_letter() for _ in range(50)])
    for number in range(10):
        replay = f"r-{number}"
        await asyncio.gather(
            store.ledger.freeze(replay, Query(), now=START),
            store.letters.record([make_letter() for _ in range(5)]),
            other.ledger.freeze(replay, Query(), now=START),
        )
        seen = [await one.ledger.entries(replay) for one in (store, other)]
        assert seen[0] == seen[1]
        assert len({entry.letter for entry in seen[0][0]}) == len(seen[0][0])
        assert await store.ledger.freeze(replay, Query(), now=START) == len(seen[0][0])
    await other.aclose()


async def test_a_body_larger_than_a_document_may_be(store: MongoStore, url: str) -> None:
    body = bytes(range(256)) * ((2 * LARGEST + 1000) // 256)
    letter = make_letter(make_message(body=body))
    await store.letters.record([letter])
    assert await store.letters.get(letter.id) == letter
    again = replace(letter, failures=(make_failure(attempt=2),))
    await store.letters.record([again])
    got = await store.letters.get(letter.id)
    assert got is not None
    assert got.message.body == body
    assert len(got.failures) == 2
    assert await pieces(url) == 3, "only the newest pieces are kept"
    assert [one.id for one in (await store.letters.search(Query(text="00 01 02 03"))).letters] == [letter.id]
    assert await store.letters.prune(Query(), limit=1) == [letter.id]
    assert await pieces(url) == 0


async def test_texts_that_look_like_operators(store: MongoStore) -> None:
    message = make_message(id="$set", source="$_store.state", tenant="$$REMOVE")
    await store.letters.record([make_letter(message, make_failure(message="$literal"), group="$group")])
    [taken] = await store.letters.claim(
        Query(sources=("$_store.state",)),
        to=State.REPLAYING,
        owner="$owner",
        now=START,
        until=START,
        limit=1,
        replay="$r",
    )
    assert (taken.owner, taken.replay, taken.message.tenant) == ("$owner", "$r", "$$REMOVE")
    assert [group.id for group in await store.letters.groups(Query(groups=("$group",)))] == ["$group"]


async def test_a_client_of_somebody_else_is_left_open(mongodb_server: MongoDB) -> None:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongodb_server.url)
    store = MongoStore(client, database="trouble", letters=f"l{uuid4().hex[:12]}")
    await store.letters.record([make_letter()])
    await store.aclose()
    assert (await client.admin.command("ping"))["ok"] == 1
    await client.drop_database("trouble")
    await client.close()


async def test_many_ids_at_once(store: MongoStore) -> None:
    letters = [make_letter(at=START + timedelta(seconds=number)) for number in range(3000)]
    await store.letters.record(letters)
    ids = [letter.id for letter in letters]
    moved = await store.letters.move(ids, expect=[State.PENDING], to=State.ARCHIVED, now=START)
    assert sorted(moved) == sorted(ids)
    assert await store.ledger.freeze("r", Query(), now=START) == 0
    assert len(await store.letters.prune(Query(states=(State.ARCHIVED,)), limit=5000)) == 3000
