"""Redis Cluster: a source is on one node with all its keys, whatever its name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from redrive.limits import Fair, Limits, Rate
from redrive.testing.builders import make_message
from redrive.testing.clock import START
from redrive.transports.base import Paused
from tests.servers.pool import ServerPool
from tests.servers.redis_cluster import RedisCluster
from tests.trouble.redis_queue import finish, link_to, private_url, transport_on

SOURCES = [*(f"source-{n}" for n in range(12)), "{", "}", "{}x", "a{b}c", "%7B", "straße/🚏"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    pool = ServerPool()
    yield pool.private(RedisCluster).url
    pool.discard()


@pytest.mark.servers
async def test_sources_on_every_node(url: str) -> None:
    url = private_url(url)
    async with transport_on(url) as transport:
        await transport.send([make_message(id=f"{n}", source=source) for source in SOURCES for n in range(3)])
        assert {source: depth.ready for source, depth in (await transport.depths()).items()} == dict.fromkeys(
            SOURCES, 3
        )
        for source in SOURCES:
            got = await asyncio.wait_for(transport.receive(source, 10), 30)
            assert [(one.message.source, one.message.id) for one in got] == [(source, f"{n}") for n in range(3)]
            assert await transport.extend(got) == []
            await finish(transport, got)
        assert await transport.depths() == {}
        await transport.check()


@pytest.mark.servers
async def test_the_keys_of_a_source_are_in_one_slot(url: str) -> None:
    async with transport_on(private_url(url)) as transport:
        queues = [transport.queue(source).encode() for source in SOURCES]
    assert [key_slot(queue) for queue in queues] == [key_slot(queue + b":ready:{x}:0") for queue in queues]
    assert len({key_slot(queue) for queue in queues}) > 10


@pytest.mark.servers
async def test_terms_pauses_and_waiting(url: str) -> None:
    async with transport_on(private_url(url)) as transport:
        transport.limit("orders", Limits(Rate(4, "1m"), Fair(weights={"a": 2})))
        receiving = asyncio.ensure_future(transport.receive("orders", 10))
        await asyncio.sleep(0.1)
        await transport.send([make_message(tenant=tenant) for tenant in "aabbcc"])
        first = await asyncio.wait_for(receiving, 30)
        rest = await asyncio.wait_for(transport.receive("orders", 10), 30) if len(first) < 4 else []
        assert len([*first, *rest]) == 4
        await transport.pause(Paused("orders", by="ann", at=START))
        await transport.resume("orders")
        assert {one.name for one in await transport.tenants("orders")} == set("abc")


@pytest.mark.servers
async def test_a_forgotten_script_is_given_again_to_every_node(url: str) -> None:
    async with transport_on(private_url(url)) as transport, link_to(url) as link:
        await transport.send([make_message(source=source) for source in SOURCES])
        await link.command("SCRIPT", "FLUSH")
        await transport.send([make_message(source=source) for source in SOURCES for _ in range(3)])
        assert sum(depth.ready for depth in (await transport.depths()).values()) == 4 * len(SOURCES)
