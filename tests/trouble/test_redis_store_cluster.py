"""All keys of a store have one hash tag, so on a cluster it is whole on one node, and every step stays atomic."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.redis import RedisStore
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START
from tests.conformance.test_redis_store import JobShape
from tests.servers.pool import ServerPool
from tests.servers.redis_cluster import RedisCluster

ALL = Query()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    pool = ServerPool()
    yield pool.private(RedisCluster)
    pool.discard()


@pytest.mark.servers
@pytest.mark.parametrize("entries", ["email:send:dlq", None])
async def test_a_store_works_on_a_cluster(cluster: RedisCluster, entries: str | None) -> None:
    shape = None if entries is None else JobShape()
    store = RedisStore(f"{cluster.url}?prefix={uuid.uuid4().hex}", shape=shape, entries=entries)
    letters = [make_letter(make_message(id=f"m-{n}", source=f"s-{n % 4}", tenant=f"t-{n % 7}")) for n in range(300)]
    await store.check()
    await store.letters.record(letters)
    await store.letters.record(letters)
    assert (await store.letters.search(ALL, limit=1000, oldest_first=True)).letters == tuple(letters)
    assert await store.letters.count(Query(tenants=("t-3",))) == 43
    assert await store.ledger.freeze("r", ALL, now=START) == 300
    assert sum((await store.ledger.tally("r")).values()) == 300
    taken = await store.letters.claim(ALL, to=State.REPLAYING, owner="me", now=START, until=START, limit=10)
    assert (
        len(await store.letters.move([one.id for one in taken], expect=[State.REPLAYING], to=State.RESOLVED, now=START))
        == 10
    )
    assert await store.documents.put("kind", "id", {"n": 1}, expect=0)
    assert [one.body for one in await store.documents.list("kind")] == [{"n": 1}]
    assert len(await store.letters.prune(ALL, limit=1000)) == 300
    await store.aclose()
