"""What a Redis can do to a queue: die, be cut off, be full, forget its scripts, be set up to lose things."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from redrive import Message, Policy, Redrive, Transient, constant
from redrive.config.settings import Settings
from redrive.doctor import Level, examine
from redrive.drivers.redis import Link, address_of, doubts
from redrive.errors import ConfigError, TransportUnavailable
from redrive.extras import install
from redrive.model import Retry
from redrive.telemetry.events import BackendDown, BackendUp
from redrive.testing.builders import make_failure, make_message
from redrive.testing.waiting import until
from redrive.transports.base import Settlement
from redrive.worker import Worker
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis
from tests.servers.toxiproxy import Toxiproxy
from tests.trouble.helpers import Told, working
from tests.trouble.redis_queue import finish, ids, link_to, private_url, transport_on

SECOND = timedelta(seconds=1)
PATIENT = "socket_timeout=0.5"


def make_app(url: str, done: Counter[str], **settings: Any) -> Redrive:
    """Half of what it handles fails once."""
    given = {"lease": 2 * SECOND, "batch": 20, "concurrency": 10, **settings}
    app = Redrive(transport=url, store="memory://", settings=Settings(**given))

    @app.handler("orders", policy=Policy(attempts=50, backoff=constant("10ms")))
    async def handle(order: dict[str, int], message: Message) -> None:
        await asyncio.sleep(0.002)
        if order["n"] % 2 and message.attempt == 1:
            raise Transient("it works the second time")
        done[message.id] += 1

    return app


async def send_all(app: Redrive, numbers: range) -> None:
    """Each again and again until it was taken: an id is one message, however often it is sent."""
    for n in numbers:
        while True:
            with suppress(TransportUnavailable):
                await app.send("orders", {"n": n}, id=f"{n}")
                break
            await asyncio.sleep(0.02)


async def until_done(done: Counter[str], number: int) -> None:
    await until(lambda: len(done) == number, timeout=180, what=f"all {number} are done")


# -- gone and back -------------------------------------------------------------------------------------------------


async def test_a_redis_that_is_killed_under_load_loses_nothing(start_server: StartsServer) -> None:
    server = start_server(Redis)
    done: Counter[str] = Counter()
    app = make_app(f"{server.url}?{PATIENT}", done)
    told = Told(app)
    async with app, working(app):
        sending = asyncio.create_task(send_all(app, range(400)))
        for wanted in (50, 150):
            await until(partial(_are_done, done, wanted), what="some are done")
            downs = len(told.of(BackendDown))
            server.kill9()
            await until(partial(_is_told_more, told, downs), what="it was noticed")
            server.start()
        await asyncio.wait_for(sending, 180)
        await until_done(done, 400)
        await until(lambda: _is_empty(app), what="nothing is left behind")
    assert told.of(BackendUp)


async def test_a_connection_that_is_cut_and_mended(redis_server: Redis, toxiproxy_server: Toxiproxy) -> None:
    proxy = toxiproxy_server.proxy(redis_server.address)
    done: Counter[str] = Counter()
    app = make_app(private_url(f"redis://{proxy.address}/0?{PATIENT}"), done)
    told = Told(app)
    async with app, working(app):
        sending = asyncio.create_task(send_all(app, range(200)))
        await until(lambda: len(done) >= 30, what="some are done")
        proxy.cut()
        await until(lambda: bool(told.of(BackendDown)), what="it was noticed")
        proxy.mend()
        await asyncio.wait_for(sending, 180)
        await until_done(done, 200)
        await until(lambda: _is_empty(app), what="nothing is left behind")


async def test_a_connection_that_goes_silent(redis_server: Redis, toxiproxy_server: Toxiproxy) -> None:
    """Nothing is refused and nothing comes back, as when a cable is pulled."""
    proxy = toxiproxy_server.proxy(redis_server.address)
    async with transport_on(private_url(f"redis://{proxy.address}/0?{PATIENT}")) as transport:
        await transport.send([make_message(id="kept")])
        proxy.add("timeout", timeout=0)
        with pytest.raises(TransportUnavailable):
            await transport.send([make_message(id="lost or not")])
        proxy.remove("timeout")
        got = await asyncio.wait_for(transport.receive("orders", 10), 30)
        assert ids(got)[0] == "kept"


def _are_done(done: Counter[str], number: int) -> bool:
    return len(done) >= number


def _is_told_more(told: Told, downs: int) -> bool:
    return len(told.of(BackendDown)) > downs


async def _is_empty(app: Redrive) -> bool:
    with suppress(TransportUnavailable):
        return not await app.transport().depths()
    return False


# -- full ----------------------------------------------------------------------------------------------------------


async def test_a_full_redis_takes_nothing_new_and_lets_what_runs_end(start_server: StartsServer) -> None:
    server = start_server(Redis)
    async with transport_on(server.url) as transport, link_to(server.url) as link:
        await transport.send([make_message(id=f"{n}", body=bytes(1000)) for n in range(100)])
        held = await transport.receive("orders", 50)
        await link.command("CONFIG", "SET", "maxmemory", "100kb")
        with pytest.raises(
            TransportUnavailable, match="its memory is full, so it takes nothing new: raise `maxmemory`"
        ):
            await transport.send([make_message(id="too much")])
        assert await transport.extend(held) == []
        retried = [Settlement(one, Retry(timedelta()), make_failure()) for one in held[:10]]
        assert await transport.settle(retried) == []
        await finish(transport, held[10:])
        rest = await transport.receive("orders", 100)
        assert len(rest) == 60
        await finish(transport, rest)
        assert await transport.depths() == {}
        await link.command("CONFIG", "SET", "maxmemory", "512mb")
        await transport.send([make_message(id="again")])
        assert ids(await transport.receive("orders", 10)) == ["again"]


async def test_a_worker_on_a_full_redis_drains_it(start_server: StartsServer) -> None:
    server = start_server(Redis)
    done: Counter[str] = Counter()
    app = make_app(server.url, done)
    async with app, link_to(server.url) as link:
        await send_all(app, range(100))
        await link.command("CONFIG", "SET", "maxmemory", "100kb")
        async with working(app):
            await until_done(done, 100)
            with pytest.raises(TransportUnavailable):
                await app.send("orders", {"n": 1000})
            await link.command("CONFIG", "SET", "maxmemory", "512mb")
            await app.send("orders", {"n": 1000}, id="1000")
            await until_done(done, 101)


# -- forgetful -----------------------------------------------------------------------------------------------------


async def test_a_server_that_forgot_its_scripts_is_given_them_again(start_server: StartsServer) -> None:
    server = start_server(Redis)
    async with transport_on(server.url) as transport, link_to(server.url) as link:
        for _ in range(2):
            await transport.send([make_message() for _ in range(1200)])  # several scripts in one round trip
            await link.command("SCRIPT", "FLUSH")
            got = await transport.receive("orders", 100)
            await link.command("SCRIPT", "FLUSH")
            assert await transport.extend(got) == []
            await link.command("SCRIPT", "FLUSH")
            await finish(transport, got)
            await link.command("SCRIPT", "FLUSH")
            await transport.depths()
            await link.command("SCRIPT", "FLUSH")
        assert (await transport.depths())["orders"].ready == 2200


async def test_a_server_that_forgot_everything_is_used_again(start_server: StartsServer) -> None:
    server = start_server(Redis)
    async with transport_on(server.url) as transport, link_to(server.url) as link:
        await transport.send([make_message(id="forgotten")])
        [held] = await transport.receive("orders", 10)
        await link.command("FLUSHALL")
        assert await transport.extend([held]) == [held]
        await transport.send([make_message(id="new")])
        assert ids(await transport.receive("orders", 10)) == ["new"]


async def test_a_message_that_somebody_deleted_is_forgotten(redis_server: Redis) -> None:
    url = private_url(redis_server.url)
    async with transport_on(url, lease=0.2 * SECOND) as transport, link_to(url) as link:
        await transport.send([make_message(id="gone"), make_message(id="here")])
        await link.command("HDEL", f"{transport.queue('orders')}:jobs", "gone")
        got = await transport.receive("orders", 10)
        assert ids(got) == ["here"]
        await finish(transport, got)

        async def is_forgotten() -> bool:
            receiving = asyncio.ensure_future(transport.receive("orders", 10))
            await asyncio.wait([receiving], timeout=0.05)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            return not await link.command("ZCOUNT", f"{transport.queue('orders')}:leases", "-inf", "(inf")

        await until(is_forgotten, what="its lease is forgotten too")


# -- not to be trusted ---------------------------------------------------------------------------------------------

UNFIT = {
    "evicting": ("maxmemory-policy allkeys-lru", "put `maxmemory-policy noeviction` into redis.conf"),
    "forgetful": ("appendonly no", "put `appendonly yes` into redis.conf"),
}


@pytest.mark.parametrize(("line", "mend"), UNFIT.values(), ids=UNFIT.keys())
async def test_a_redis_that_loses_messages_is_refused(start_server: StartsServer, line: str, mend: str) -> None:
    server = start_server(lambda: Redis(lines=[line]))
    async with transport_on(server.url) as transport:
        with pytest.raises(ConfigError, match=mend):
            await transport.send([make_message()])
        with pytest.raises(ConfigError, match="checks=off"):
            await transport.receive("orders", 1)
    async with transport_on(f"{server.url}?checks=off") as transport:
        await transport.send([make_message()])
        assert len(await transport.receive("orders", 1)) == 1
    async with make_app(server.url, Counter()) as refused:
        with pytest.raises(ConfigError, match=mend):
            await Worker(refused, upkeep=False).run()
    async with Redrive(transport=server.url, store="memory://", settings=Settings()) as app:
        found = [one for one in (await examine(app)).findings if one.about == "transports.default"]
    assert [(one.level, mend in one.text + one.mend) for one in found] == [(Level.FAILURE, True)]


def test_an_old_redis_is_refused() -> None:
    fit = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "aof_enabled": 1}
    assert list(doubts(fit)) == []
    [doubt] = doubts({**fit, "redis_version": "6.2.14"})
    assert "6.2.14" in doubt.text
    assert doubt.mend == "use Redis 7.0 or newer"


async def test_a_redis_that_does_not_answer_is_unavailable() -> None:
    async with transport_on(f"redis://127.0.0.1:1/0?{PATIENT}") as transport:
        calls = transport.check(), transport.send([make_message()]), transport.receive("x", 1), transport.depths()
        for call in calls:
            with pytest.raises(TransportUnavailable, match=r"redis://127\.0\.0\.1:1/0 is unavailable"):
                await call


async def test_a_wrong_password_is_named_and_not_shown(start_server: StartsServer) -> None:
    server = start_server(Redis)
    async with link_to(server.url) as link:
        await link.command("CONFIG", "SET", "requirepass", "right")
        with pytest.raises(TransportUnavailable, match="correct user and password") as raised:
            async with transport_on(f"redis://:wrong@{server.address}/0") as transport:
                await transport.check()
        assert "wrong@" not in str(raised.value)


WRONG = {
    "redis://h/0?pre=x": "unknown option 'pre'.*did you mean 'prefix'",
    "redis://h/0?prefix=": "prefix=''.*not empty",
    "redis://h/0?prefix={a}": "no braces",
    "redis://h/0?checks=no": "on or off",
    "redis://h:port/0": "cannot be used",
    "redis://h/0?socket_timeout=soon": "cannot be used",
}


@pytest.mark.parametrize(("url", "said"), WRONG.items())
def test_a_url_that_is_wrong_says_how(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        address_of(url)


def test_without_its_extra_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['redis'] = None; import redrive; redrive.Redrive(transport='redis://h').transport()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"Redis needs an extra: {install('redis')}" in done.stderr


def test_a_password_is_not_shown() -> None:
    address = address_of("rediss+cluster://me:secret@host:7000?prefix=mail&ssl_ca_certs=ca.pem")
    assert (address.shown, address.prefix, address.cluster) == ("rediss+cluster://host:7000", "mail", True)
    assert address.url == "rediss://me:secret@host:7000?ssl_ca_certs=ca.pem"


async def test_a_cancelled_command_is_cancelled(redis_server: Redis) -> None:
    """Whenever it comes: a worker that is told to stop must not go on because its driver swallowed it."""

    async def forever(link: Link) -> None:
        while True:
            await link.command("PING")

    for number in range(60):
        async with link_to(redis_server.url) as link:
            tasks = [asyncio.create_task(forever(link)) for _ in range(4)]
            for _ in range(number):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            done, late = await asyncio.wait(tasks, timeout=120)
            assert not late
            assert all(task.cancelled() for task in done)


async def test_a_link_closed_twice() -> None:
    link = Link("redis://127.0.0.1:1/0")
    await link.aclose()
    await link.aclose()
