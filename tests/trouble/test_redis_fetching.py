"""A fetch that waits on the server, and queues that an older Redrive has left behind, on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from redrive.drivers.redis import Link
from redrive.limits import Fair, Limits
from redrive.model import Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.waiting import until
from redrive.transports.base import Depth, Settlement
from redrive.transports.redis import RedisTransport
from redrive.transports.redis.packing import digest
from tests.servers.redis import Redis
from tests.trouble.redis_queue import finish, ids, link_to, private_url, transport_on


@pytest.fixture
def url(redis_server: Redis) -> str:
    return private_url(redis_server.url)


@pytest_asyncio.fixture
async def transport(url: str) -> AsyncIterator[RedisTransport]:
    async with transport_on(url) as transport:
        yield transport


@pytest_asyncio.fixture
async def link(url: str) -> AsyncIterator[Link]:
    async with link_to(url) as link:
        yield link


async def waits(link: Link, transport: RedisTransport) -> bool:
    """Whether a fetch of that queue waits on the server: it takes the sign, and nothing comes of it."""
    wake = f"{transport.queue('orders')}:wake"
    await link.command("RPUSH", wake, 1)
    return not await link.command("LLEN", wake)


async def test_a_fetch_that_nobody_waits_for_any_more_holds_nothing(
    url: str, transport: RedisTransport, link: Link
) -> None:
    receiving = asyncio.ensure_future(transport.receive("orders", 10))
    await until(lambda: waits(link, transport))
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await transport.send([make_message(id="a")])
    async with transport_on(url) as other:
        [got] = await asyncio.wait_for(other.receive("orders", 10), 25)  # less than a lease
        await finish(other, [got])
        await transport.aclose()
        assert await other.depths() == {}
    bells = await link.command("KEYS", f"{transport.queue('orders')}:wake:*")
    assert all([await link.command("PTTL", bell) > 0 for bell in bells])


async def test_what_is_delayed_comes_when_it_is_due_and_not_when_the_wait_ends(
    transport: RedisTransport, link: Link
) -> None:
    await transport.send([make_message(id="a")])
    [held] = await transport.receive("orders", 1)
    await transport.settle([Settlement(held, Retry(timedelta(milliseconds=300)), make_failure())])
    [again] = await asyncio.wait_for(transport.receive("orders", 1), 4)  # less than the longest wait
    assert (again.message.id, again.message.attempt) == ("a", 2)


async def test_the_scripts_that_a_server_forgot_while_we_waited_are_given_to_it_again(
    transport: RedisTransport, link: Link
) -> None:
    receiving = asyncio.ensure_future(transport.receive("orders", 10))
    await until(lambda: waits(link, transport))
    await link.command("SCRIPT", "FLUSH")
    await transport.send([make_message(id="a")])
    assert ids(await asyncio.wait_for(receiving, 25)) == ["a"]


async def test_an_urgent_message_overtakes_in_a_queue_that_knew_no_priorities(transport: RedisTransport) -> None:
    transport.limit("orders", Limits(fair=Fair()))
    await transport.send([make_message(id=f"{n}", tenant="a") for n in range(4)])
    assert ids(await transport.receive("orders", 1)) == ["0"]
    await transport.send([make_message(id="urgent", tenant="a", priority=-1)])
    await transport.send([make_message(id="late", tenant="a", priority=9)])
    assert ids(await transport.receive("orders", 9)) == ["urgent", "1", "2", "3", "late"]


async def test_a_priority_that_an_older_redrive_added_is_not_stranded(transport: RedisTransport, link: Link) -> None:
    await transport.send([make_message(id="a", priority=7), make_message(id="b")])
    await link.command("HSET", f"{transport.queue('orders')}:terms", "plain", 1)  # it would not have taken it away
    assert sorted(ids(await transport.receive("orders", 9))) == ["a", "b"]
    assert await transport.depths() == {"orders": Depth(0, 0, 2)}


async def test_the_record_of_a_tenant_of_an_older_redrive_is_read(transport: RedisTransport, link: Link) -> None:
    transport.limit("orders", Limits(fair=Fair()))
    await transport.send([make_message(id="a", tenant="old")])
    old = "return redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack({'old', 3.5, 41, 0, 2}))"
    await link.command("EVAL", old, 1, f"{transport.queue('orders')}:tenants", digest("old"))
    await finish(transport, await transport.receive("orders", 1))
    [found] = await transport.tenants("orders")
    assert (found.name, found.total_processed) == ("old", 42)
