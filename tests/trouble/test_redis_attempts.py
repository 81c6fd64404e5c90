"""What counts as an attempt on a queue in Redis, what holds at the target, and what a server forgets."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.errors import ConfigError, TransportUnavailable
from redrive.limits import Fair, Limits, Rate
from redrive.model import Done, Message, Release, Retry
from redrive.telemetry.events import BackendDown
from redrive.testing.builders import make_failure, make_message
from redrive.testing.waiting import until
from redrive.transports.base import Settlement
from redrive.transports.redis import RedisTransport
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis
from tests.servers.toxiproxy import Toxiproxy
from tests.trouble.helpers import Told, start, working
from tests.trouble.redis_queue import finish, ids, link_to, private_url, transport_on
from tests.trouble.redis_time import let_time_pass

MINUTE = timedelta(minutes=1)


@pytest.fixture
def url(redis_server: Redis) -> str:
    return private_url(redis_server.url)


# -- attempts ------------------------------------------------------------------------------------------------------

_HANGING = """
import asyncio, sys
from redrive import Message, Redrive
from redrive.config.settings import Settings
from redrive.worker import Worker

async def main(url, begun):
    app = Redrive(transport=url, store="memory://", settings=Settings(batch=10))

    @app.handler("orders", concurrency=2)
    async def handle(order: dict, message: Message) -> None:
        with open(begun, "a") as file:
            file.write(message.id + "\\n")
        await asyncio.Event().wait()

    async with app:
        await Worker(app, upkeep=False).run()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_a_killed_worker_had_only_fetched_has_all_its_attempts(url: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    async with transport_on(url) as transport:
        await transport.send([make_message(id=f"{n}") for n in range(10)])
        worker = await start(_HANGING, url, str(begun))
        await until(lambda: begun.exists() and len(begun.read_text().split()) == 2, timeout=60, what="two have begun")
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
        assert (await transport.depths())["orders"].leased == 10
        await let_time_pass(url, MINUTE)
        attempts = {one.message.id: one.message.attempt for one in await transport.receive("orders", 100)}
    assert attempts == {f"{n}": 2 if f"{n}" in begun.read_text().split() else 1 for n in range(10)}


async def test_handlers_that_take_no_time_are_counted_when_they_are_received(url: str) -> None:
    app, done = Redrive(transport=url, store="memory://", settings=Settings(batch=50)), list[str]()

    @app.handler("orders")
    async def handle(order: dict[str, int], message: Message) -> None:
        done.append(message.id)

    async with app, working(app):
        for wanted in range(200, 2001, 200):
            await app.send_messages([app.message("orders", {"n": n}) for n in range(200)])
            await until(partial(_has, done, wanted), what="all are done")
    assert len(set(done)) == 2000


def _has(done: list[str], wanted: int) -> bool:
    return len(done) == wanted


async def test_a_settlement_whose_answer_got_lost_is_no_lost_lease(
    redis_server: Redis, toxiproxy_server: Toxiproxy
) -> None:
    proxy = toxiproxy_server.proxy(redis_server.address)
    async with transport_on(private_url(f"redis://{proxy.address}/0?socket_timeout=1")) as transport:
        await transport.send([make_message(id=f"{n}") for n in range(4)])
        done, retried, released, waits = await transport.receive("orders", 4)
        settlements = [
            Settlement(done, Done()),
            Settlement(retried, Retry(timedelta()), make_failure()),
            Settlement(released, Release()),
        ]
        proxy.add("timeout", timeout=0)
        with pytest.raises(TransportUnavailable):
            await transport.settle(settlements)
        proxy.remove("timeout")
        assert await transport.settle(settlements) == [], "we had settled them ourselves"
        assert await transport.settle(settlements[:1]) == [done], "that is known by now"
        assert sorted(ids(await transport.receive("orders", 10))) == sorted([retried.message.id, released.message.id])
        await finish(transport, [waits])


async def test_a_tenants_jobs_are_counted_and_not_how_often_they_came(url: str) -> None:
    async with transport_on(url) as transport:
        transport.limit("orders", Limits(fair=Fair()))
        await transport.send([make_message(id=f"{n}", tenant="acme") for n in range(4)])
        done, retried, released, lapsed = await transport.receive("orders", 4)
        await transport.begin([done, retried, lapsed])
        await finish(transport, [done])
        await transport.settle(
            [Settlement(retried, Retry(timedelta()), make_failure()), Settlement(released, Release())]
        )
        await let_time_pass(url, MINUTE)
        again = await transport.receive("orders", 10)
        assert {one.message.id: one.message.attempt for one in again} == {
            retried.message.id: 2,
            released.message.id: 1,
            lapsed.message.id: 2,
        }
        await finish(transport, again)
        (acme,) = await transport.tenants("orders")
    assert acme.total_processed == 4


# -- a rate at the target ------------------------------------------------------------------------------------------


async def test_a_rate_that_counts_to_the_end_counts_what_runs_and_what_ended_within_its_span(url: str) -> None:
    async with transport_on(url, lease=9 * MINUTE) as transport, transport_on(url) as other:
        for each in (transport, other):
            each.limit("orders", Limits(Rate(4, MINUTE, to_the_end=True)))
        await transport.send([make_message(id=f"{n}") for n in range(20)])
        slow, *quick = await transport.receive("orders", 4)
        await transport.begin([slow, *quick])
        await let_time_pass(url, timedelta(seconds=20))
        await finish(transport, quick)
        await let_time_pass(url, timedelta(seconds=45))  # 65 s after they began
        assert await _is_waiting(other), "none of them ended a minute ago"
        assert await transport.extend([slow]) == []
        await let_time_pass(url, timedelta(seconds=20))
        got = await other.receive("orders", 10)
        assert len(got) == 3, "one still runs"
        await transport.settle([Settlement(one, Release()) for one in got])
        assert len(await other.receive("orders", 10)) == 3, "what was given back unbegun was not sent"


async def _is_waiting(transport: RedisTransport) -> bool:
    receiving = asyncio.ensure_future(transport.receive("orders", 100))
    done, _ = await asyncio.wait([receiving], timeout=0.15)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    return not done


# -- a server that forgets -----------------------------------------------------------------------------------------


async def test_fairness_outlives_that_somebody_empties_the_server(start_server: StartsServer) -> None:
    server = start_server(Redis)
    async with transport_on(server.url) as worker, transport_on(server.url) as producer, link_to(server.url) as link:
        for each in (worker, producer):
            each.limit("orders", Limits(fair=Fair()))
        await producer.send([make_message(tenant="acme")])
        await finish(worker, await worker.receive("orders", 1))
        waiting = asyncio.ensure_future(worker.receive("orders", 10))
        await link.command("FLUSHALL")
        await producer.send([make_message(id=f"a{n}", tenant="acme") for n in range(8)])
        await producer.send([make_message(id=f"b{n}", tenant="umbrella") for n in range(2)])
        first = await asyncio.wait_for(waiting, 30)
        rest = await worker.receive("orders", 10) if len(first) < 10 else []
        tenants = {one.name for one in await worker.tenants("orders")}
        assert "orders" in await producer.depths(), "the source is named again"
    assert tenants == {"acme", "umbrella"}
    order = [one.message.tenant for one in (*first, *rest)]
    assert order.index("umbrella") <= 8


async def test_a_worker_that_lost_the_terms_gets_them_back_before_it_fetches(start_server: StartsServer) -> None:
    server = start_server(Redis)
    async with transport_on(server.url) as worker, transport_on(server.url) as other, link_to(server.url) as link:
        worker.limit("orders", Limits(fair=Fair()))
        await worker.send([make_message()])
        await finish(worker, await worker.receive("orders", 1))
        await link.command("FLUSHALL")
        await other.send([make_message(id="first", tenant="acme")])  # somebody who knows no terms
        assert ids(await worker.receive("orders", 10)) == ["first"]
        await other.send([make_message(tenant="acme") for _ in range(8)])
        await other.send([make_message(tenant="umbrella")])
        order = [one.message.tenant for one in await worker.receive("orders", 100)]
    assert "umbrella" in order[:4]


@asynccontextmanager
async def _idle_worker(url: str) -> AsyncIterator[tuple[Told, list[int]]]:
    app, done = Redrive(transport=url, store="memory://"), list[int]()

    @app.handler("orders")
    async def handle(order: dict[str, int]) -> None:
        done.append(order["n"])

    told = Told(app)
    async with app, working(app):
        await app.send("orders", {"n": 1})
        await until(lambda: done == [1], what="it works")
        yield told, done


async def test_a_redis_that_comes_back_without_its_file_is_noticed_by_who_runs(start_server: StartsServer) -> None:
    server = start_server(Redis)
    async with _idle_worker(f"{server.url}?socket_timeout=1") as (told, done):
        server.kill9()
        server.lines = ["appendonly no"]
        server.start()
        await until(lambda: _is_named(told, "appendonly yes"), timeout=30, what="the line is named")
        async with link_to(server.url) as link:
            await link.command("CONFIG", "SET", "appendonly", "yes")
        async with transport_on(server.url) as producer:
            await producer.send([make_message(body=b'{"n": 2}')])
        await until(lambda: done == [1, 2], timeout=30, what="it goes on when it is mended")


def _is_named(told: Told, line: str) -> bool:
    return any(line in event.why for event in told.of(BackendDown))


async def test_a_redis_that_leaves_writing_to_the_machine_is_refused(start_server: StartsServer) -> None:
    server = start_server(lambda: Redis(lines=["appendfsync no"]))
    async with transport_on(server.url) as transport:
        with pytest.raises(ConfigError, match="put `appendfsync everysec`"):
            await transport.check()
    async with transport_on(f"{server.url}?checks=off") as transport:
        await transport.check()


async def test_a_redis_that_does_not_say_how_it_writes_is_taken(start_server: StartsServer) -> None:
    server = start_server(lambda: Redis(lines=["appendfsync no", 'rename-command CONFIG ""']))
    async with transport_on(server.url) as transport:
        await transport.check()
