"""What the doctor says of a store in OpenSearch."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from opensearchpy import AsyncOpenSearch

from redrive import Redrive
from redrive.doctor import Level, examine
from redrive.doctor.cluster import cluster
from redrive.doctor.findings import Finding
from redrive.stores.opensearch import OpenSearchStore
from redrive.stores.opensearch.health import Health
from redrive.testing.builders import make_letter
from tests.servers.opensearch import OpenSearch


@pytest_asyncio.fixture
async def client(opensearch_server: OpenSearch) -> AsyncIterator[AsyncOpenSearch]:
    async with AsyncOpenSearch(opensearch_server.url, timeout=60) as client:
        yield client
        await client.indices.delete(index="doctored*", ignore_unavailable=True)


async def findings(server: OpenSearch, options: str = "", *, record: bool) -> list[Finding]:
    app = Redrive(transport="memory://", store=f"opensearch://{server.address}/doctored{options}")
    async with app:
        if record:
            await app.store.letters.record([make_letter()])
        return [one for one in (await examine(app)).findings if one.about in ("store", "letters")]


async def test_a_cluster_that_is_well(opensearch_server: OpenSearch, client: AsyncOpenSearch) -> None:
    found = [(one.level, one.text) for one in await findings(opensearch_server, record=True)]
    assert (Level.FINE, "the cluster is green, with 1 data node") in found
    assert (Level.FINE, "1 kept") in found


async def test_a_cluster_without_a_place_for_copies(opensearch_server: OpenSearch, client: AsyncOpenSearch) -> None:
    [found] = [
        one
        for one in await findings(opensearch_server, "?replicas=1", record=True)
        if one.level is Level.WARNING and "yellow" in one.text
    ]
    assert "4 copies are on no node" in found.text
    assert "number_of_replicas" in found.mend


async def test_where_nothing_is_nothing_is_made(opensearch_server: OpenSearch, client: AsyncOpenSearch) -> None:
    found = await findings(opensearch_server, record=False)
    assert any("none yet" in one.text for one in found)
    assert await client.indices.get(index="doctored*") == {}


async def test_an_index_that_takes_no_writes(opensearch_server: OpenSearch, client: AsyncOpenSearch) -> None:
    await OpenSearchStore(client, index="doctored").letters.record([make_letter()])
    await client.indices.put_settings(index="doctored*", body={"index.blocks.write": True})
    [found] = await findings(opensearch_server, record=False)
    assert found.level is Level.FAILURE
    assert "index write (api)" in found.text


@pytest.mark.parametrize(
    ("health", "levels", "says"),
    [
        (Health(status="red", unassigned=2, nodes=1, disk_used=10.0), [Level.FAILURE], "2 shards are on no node"),
        (Health(status="green", unassigned=0, nodes=3, disk_used=91.5), [Level.FINE, Level.WARNING], "91.5 % full"),
        (Health(status="green", unassigned=0, nodes=3, disk_used=None), [Level.FINE], "3 data nodes"),
    ],
)
async def test_what_is_said_of_a_cluster(
    client: AsyncOpenSearch, monkeypatch: pytest.MonkeyPatch, health: Health, levels: list[Level], says: str
) -> None:
    async def told() -> Health:
        return health

    store = OpenSearchStore(client, index="doctored")
    monkeypatch.setattr(store, "health", told)
    found = [one async for one in cluster(Redrive(transport="memory://", store="memory://"), store)]
    assert [one.level for one in found] == levels
    assert says in " ".join(one.text for one in found)
