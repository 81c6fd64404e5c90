"""OpenSearch in trouble: too busy, full, slow, cut off, killed. Nothing is lost, and what is wrong is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opensearchpy import AsyncOpenSearch

from redrive import Policy
from redrive.clock import SystemClock
from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.stores.opensearch import OpenSearchStore, open_store
from redrive.stores.opensearch.access import Access
from redrive.telemetry.events import BackendDown, Events
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START, ManualClock
from redrive.testing.waiting import until
from redrive.upkeep.rescue import rescue_claims
from tests.actors import acting
from tests.servers import web
from tests.servers.opensearch import OpenSearch
from tests.servers.pool import ServerPool
from tests.servers.toxiproxy import Proxy, Toxiproxy
from tests.trouble.helpers import Told, make_app, until_empty, working

ALL = Query()
INDEX = "trouble"
LEASE = timedelta(minutes=5)


class Narrow(OpenSearch):
    """A cluster that writes one batch at a time and lets one wait: whoever comes then is sent away."""

    def prepare(self) -> None:
        super().prepare()
        with (self.directory / "config" / "opensearch.yml").open("a") as config:
            config.write("thread_pool.write.size: 1\nthread_pool.write.queue_size: 1\n")

    def writes(self, what: str) -> int:
        """How many are active, in the queue, or were rejected."""
        stats = web.get(f"{self.url}/_nodes/stats/thread_pool")
        return sum(int(node["thread_pool"]["write"][what]) for node in stats["nodes"].values())


class WhenIdle(SystemClock):
    """Whoever waits, waits until the cluster has nothing to write."""

    def __init__(self, server: Narrow) -> None:
        super().__init__()
        self._server = server

    async def sleep(self, seconds: float) -> None:
        await until(lambda: self._server.writes("active") + self._server.writes("queue") == 0, what="it is idle")


class OnceServed(SystemClock):
    """Whoever waits, waits until a node may have all shards of the test's indexes."""

    def __init__(self, client: AsyncOpenSearch) -> None:
        super().__init__()
        self._client = client
        self.waits = 0

    async def sleep(self, seconds: float) -> None:
        self.waits += 1
        await served(self._client, f"{INDEX}*")


@pytest.fixture(scope="module")
def narrow(server_pool: ServerPool) -> Iterator[Narrow]:
    """Of this module's own, since it is killed; one for all of its tests, since it takes long to start."""
    pool = ServerPool()
    yield pool.private(Narrow)
    pool.discard()


@pytest_asyncio.fixture
async def client(opensearch_server: OpenSearch) -> AsyncIterator[AsyncOpenSearch]:
    async with AsyncOpenSearch(opensearch_server.url, timeout=60) as client:
        yield client
        await client.indices.delete(index=f"{INDEX}*", ignore_unavailable=True)


@pytest.fixture
def proxy(toxiproxy_server: Toxiproxy, opensearch_server: OpenSearch) -> Proxy:
    return toxiproxy_server.proxy(opensearch_server.address)


@pytest.fixture
def beside(client: AsyncOpenSearch) -> OpenSearchStore:
    """The same store, without the proxy."""
    return OpenSearchStore(client, index=INDEX)


@pytest_asyncio.fixture
async def through(client: AsyncOpenSearch, proxy: Proxy) -> AsyncIterator[OpenSearchStore]:
    """A store behind the proxy, whose indexes exist, and which does not wait long."""
    store = open_store(f"opensearch://{proxy.address}/{INDEX}?timeout=1s")
    async with patience():
        await recorded(store, make_letter(make_message(id="first")))
    yield store
    await store.aclose()


def patience() -> asyncio.Timeout:
    return asyncio.timeout(120)


async def recorded(store: OpenSearchStore, *letters: Letter) -> None:
    """As a worker does: what could not be written is tried again until it is."""
    while True:
        try:
            return await store.letters.record(letters)
        except StoreUnavailable:
            await asyncio.sleep(0.01)


async def blocked(client: AsyncOpenSearch, block: str, value: bool) -> None:
    await client.indices.put_settings(index=f"{INDEX}*", body={f"index.blocks.{block}": value or None})


async def unserved(client: AsyncOpenSearch, index: str) -> None:
    """Make an index as it is a moment after somebody made it: it is there, and no node serves it."""
    settings = {"index.routing.allocation.require._name": "nobody", "number_of_shards": 1, "number_of_replicas": 0}
    await client.indices.create(index=index, body={"settings": settings}, params={"wait_for_active_shards": "0"})


async def served(client: AsyncOpenSearch, index: str) -> None:
    await client.indices.put_settings(index=index, body={"index.routing.allocation.require._name": None})


# -- too busy, full --------------------------------------------------------------------------------------------------


async def test_who_is_sent_away_comes_again_and_nothing_is_lost(narrow: Narrow) -> None:
    """Single items of a bulk request are refused with 429; those alone are written again."""
    async with AsyncOpenSearch(narrow.url, timeout=60) as client, patience():
        store = OpenSearchStore(client, index="busy", clock=WhenIdle(narrow))
        await store.letters.record([make_letter()])
        before, written = narrow.writes("rejected"), 1
        while narrow.writes("rejected") == before:
            batches = [[make_letter() for _ in range(40)] for _ in range(6)]
            await asyncio.gather(*(store.letters.record(some) for some in batches))
            written += 240
        assert await store.letters.count(ALL) == written


@pytest.mark.parametrize(
    ("block", "says"),
    [("read_only_allow_delete", "flood-stage watermark"), ("write", "blocked by")],
)
async def test_an_index_that_takes_no_writes(client: AsyncOpenSearch, block: str, says: str) -> None:
    """`read_only_allow_delete` is what a cluster sets when its disk is full: 429, for as long as it is."""
    clock = ManualClock()
    store = OpenSearchStore(client, index=INDEX, clock=clock)
    letter, other = make_letter(), make_letter()
    await store.letters.record([letter])
    await store.check()
    await blocked(client, block, True)
    claim: dict[str, Any] = {"to": State.RETRYING, "owner": "me", "now": START, "until": START + LEASE, "limit": 5}
    for work in (
        store.letters.record([other]),
        store.letters.claim(ALL, **claim),
        store.letters.move([letter.id], expect=[State.PENDING], to=State.ARCHIVED, now=START),
        store.ledger.freeze("r", ALL, now=START),
        store.documents.put("k", "id", {}),
        store.check(),
    ):
        with pytest.raises(StoreUnavailable, match=says):
            await clock.eventually(work)
    assert (await store.letters.search(ALL)).letters == (letter,), "it can be read all the same"
    await blocked(client, block, False)
    await store.letters.record([other])
    await store.check()
    assert await store.ledger.freeze("r", ALL, now=START) == 2
    assert await store.letters.count(Query(states=(State.PENDING,))) == 2


async def test_an_index_whose_shard_no_node_has(client: AsyncOpenSearch) -> None:
    """It is waited for as long as `timeout` says, then it is an outage; when a node has it, all goes on."""
    await unserved(client, INDEX)
    store = OpenSearchStore(client, index=INDEX, timeout=timedelta(seconds=0.5))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="no node serves a part of the index yet"):
            await store.letters.record([make_letter()])
    await served(client, INDEX)
    async with patience():
        await recorded(store, make_letter(make_message(id="after")))
    assert await OpenSearchStore(client, index=INDEX).letters.count(Query(message_ids=("after",))) == 1


@pytest.mark.parametrize("known", [False, True], ids=["first used", "made anew"])
async def test_an_index_that_another_process_has_just_made_is_no_outage(client: AsyncOpenSearch, known: bool) -> None:
    """For a moment it is there, and no node serves it yet: whoever asks for a document waits."""
    store = OpenSearchStore(client, index=INDEX, clock=OnceServed(client))
    if known:
        await store.documents.put("k", "id", {})
        await client.indices.delete(index=f"{INDEX}-documents")
    await unserved(client, f"{INDEX}-documents")
    async with patience():
        assert await store.documents.get("k", "id") is None


async def test_a_search_that_would_miss_what_is_not_served_waits_for_it(client: AsyncOpenSearch) -> None:
    """OpenSearch answers 200 with the letters of the other shards, counts none as failed, and says no more."""
    await client.indices.create(index=f"{INDEX}-served")
    await unserved(client, f"{INDEX}-unserved")
    clock = OnceServed(client)
    both, access = f"{INDEX}-served,{INDEX}-unserved", Access(client, clock, timedelta(minutes=2))
    shards = (await access.search(both, {}))["_shards"]
    assert shards["successful"] == shards["total"]
    await unserved(client, f"{INDEX}-later")
    async with access.snapshot(f"{both},{INDEX}-later") as snapshot:
        shards = (await access.search(None, snapshot))["_shards"]
    assert shards["successful"] == shards["total"] == 3
    await client.index(index=f"{INDEX}-served", body={}, params={"refresh": "true"})
    await unserved(client, f"{INDEX}-last")
    before = clock.waits
    assert await access.count(f"{both},{INDEX}-last", {"match_all": {}}) == 1
    assert clock.waits > before


# -- slow, cut off ---------------------------------------------------------------------------------------------------


async def test_a_cluster_that_is_not_there() -> None:
    store = open_store("opensearch://127.0.0.1:1/redrive")
    for work in (store.check(), store.letters.record([make_letter()]), store.letters.count(ALL)):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await work
    await store.aclose()


async def test_something_else_answers_at_that_address(toxiproxy_server: Toxiproxy) -> None:
    store = open_store(f"opensearch://{toxiproxy_server.address}/redrive")
    with pytest.raises(StoreUnavailable, match="is not OpenSearch"):
        await store.letters.record([make_letter()])
    await store.aclose()


async def test_a_connection_that_is_cut_and_mended(
    through: OpenSearchStore, beside: OpenSearchStore, proxy: Proxy
) -> None:
    proxy.cut()
    letters = [make_letter() for _ in range(5)]
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await through.letters.record(letters)
    proxy.mend()
    async with patience():
        await recorded(through, *letters)
    assert await beside.letters.count(ALL) == 6


async def test_answers_that_never_come(through: OpenSearchStore, beside: OpenSearchStore, proxy: Proxy) -> None:
    """What was asked for was done, and nobody knows: doing it again changes nothing."""
    letters = [make_letter() for _ in range(5)]
    proxy.add("timeout", timeout=0)
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await through.letters.record(letters)
    proxy.remove("timeout")
    async with patience():
        await recorded(through, *letters)
    assert await beside.letters.count(ALL) == 6
    for letter in letters:
        assert await beside.letters.get(letter.id) == letter


async def test_a_claim_whose_answer_never_came_is_rescued_when_its_lease_ends(
    beside: OpenSearchStore, proxy: Proxy
) -> None:
    clock = ManualClock()
    client = AsyncOpenSearch(f"http://{proxy.address}", timeout=5, max_retries=0)
    through = OpenSearchStore(client, index=INDEX)
    await recorded(beside, make_letter(make_message(id="first")))
    claim: dict[str, Any] = {"to": State.RETRYING, "owner": "me", "until": clock.now() + LEASE, "limit": 5}
    lose_answers_to_writes(client, proxy)
    with pytest.raises(StoreUnavailable):
        await through.letters.claim(ALL, now=clock.now(), **claim)

    async def is_claimed() -> bool:
        return await beside.letters.count(Query(states=(State.RETRYING,), owner="me")) == 1

    await until(is_claimed, what="the cluster did what it was asked")
    proxy.remove("timeout")
    await through.aclose()
    await client.close()
    assert await rescue_claims(beside, Events(), clock) == 0, "its lease has not ended"
    await clock.advance(LEASE.total_seconds() + 1)
    assert await rescue_claims(beside, Events(), clock) == 1
    [letter] = (await beside.letters.search(Query(states=(State.PENDING,)))).letters
    assert (letter.owner, letter.resends, letter.retries) == (None, 0, 0)


def lose_answers_to_writes(client: AsyncOpenSearch, proxy: Proxy) -> None:
    """The answer to a write is lost, and that to the search before it is not."""
    perform = client.transport.perform_request

    async def cut_off(method: str, path: str, **more: Any) -> Any:
        if path.endswith("/_bulk"):
            proxy.add("timeout", timeout=0)
        return await perform(method, path, **more)

    client.transport.perform_request = cut_off  # type: ignore[method-assign, assignment]


# -- a worker through it all --------------------------------------------------------------------------------------


async def test_a_worker_loses_its_store_for_a_while_and_no_message(
    beside: OpenSearchStore, proxy: Proxy, tmp_path: Path
) -> None:
    """Messages fail while the cluster is cut off; afterwards each is a letter, and a replay resolves them all."""
    app = make_app(tmp_path, store=f"opensearch://{proxy.address}/{INDEX}?timeout=30s")
    told, mended = Told(app), asyncio.Event()

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: int) -> None:
        if not mended.is_set():
            raise ValueError("not yet")

    orders = Query(sources=("orders",), states=(State.PENDING,), text="not yet")
    async with app, working(app):
        proxy.cut()
        await app.send_messages([app.message("orders", number) for number in range(20)])
        await until(lambda: bool(told.of(BackendDown)), what="the worker noticed")
        proxy.mend()
        await until_empty(app)
        assert await beside.letters.count(orders) == 20
        mended.set()
        service = Service(app)
        replay = await service.replay(orders, actor=acting("ann"))
        await service.run_replay(replay.id)

        async def are_resolved() -> bool:
            return await beside.letters.count(Query(sources=("orders",), states=(State.RESOLVED,))) == 20

        await until(are_resolved, timeout=60, what="every letter of the replay is resolved")
        assert (await service.replay_report(replay.id)).entries == {EntryStatus.RESOLVED: 20}


# -- killed ----------------------------------------------------------------------------------------------------------


async def test_a_cluster_that_is_killed_under_load_has_every_letter_afterwards(narrow: Narrow) -> None:
    store = open_store(f"opensearch://{narrow.address}/killed?timeout=20s")
    await recorded(store, make_letter(make_message(id="first")))
    written: list[Letter] = []
    killed = asyncio.Event()

    async def writer(number: int) -> None:
        for round in range(1000):
            if killed.is_set() and round % 5 == 0:
                return
            letter = make_letter(make_message(id=f"{number}-{round}"), make_failure(attempt=round + 1))
            await recorded(store, letter, letter)
            written.append(letter)

    writers = [asyncio.create_task(writer(number)) for number in range(4)]
    await until(lambda: len(written) > 20, what="some letters are written")
    narrow.kill9()
    with pytest.raises(StoreUnavailable):
        await store.letters.count(ALL)
    narrow.launch()
    killed.set()
    async with asyncio.timeout(150):
        await asyncio.gather(*writers)
    known = {letter.id: letter for letter in (await store.letters.search(ALL, limit=5000)).letters}
    assert len(known) == len(written) + 1
    assert all(known[letter.id] == letter for letter in written)
    assert await store.letters.count(ALL) == len(known)
    await store.aclose()
