"""A storm over worker processes on real servers: few letters instead of all, and everything goes through afterwards."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.testing.waiting import until
from tests.actors import acting
from tests.conformance.test_kafka_transport import make_topics
from tests.servers import web
from tests.servers.kafka import Kafka
from tests.servers.postgresql import PostgreSQL
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.servers.redis import Redis

pytestmark = pytest.mark.servers
MESSAGES, AT_LEAST, WORKERS = int(os.environ.get("REDRIVE_STORM_MESSAGES", "600")), 50, 2
_WORKER = """
import asyncio, logging, os, sys
from datetime import timedelta
from redrive import Message, Permanent, Policy, Redrive, Storm
from redrive.config.settings import Settings
from redrive.worker import run

def main(transport, store, place, orders, at_least):
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    app = Redrive(transport=transport, store=store, settings=Settings(lease=timedelta(seconds=5), batch=20))
    file = os.open(place + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    storm = Storm(share=0.5, over="1m", at_least=int(at_least))

    @app.handler(orders, policy=Policy(attempts=3, storm=storm), concurrency=5)
    async def handle(body: bytes, message: Message) -> None:
        await asyncio.sleep(0.002)
        if os.path.exists(place + "/broken"):
            raise Permanent("the database is gone")
        os.write(file, f"{message.id}\\n".encode())

    run(app, upkeep=False, grace=timedelta(seconds=5))

main(*sys.argv[1:])
"""


class Shop:
    """Worker processes of one app, and what they have done."""

    def __init__(self, transport: str, place: Path, orders: str) -> None:
        self.transport, self.store = transport, f"sqlite:///{place / 'letters.db'}"
        self.place, self.orders = place, orders
        self.processes: list[Process] = []
        (place / "broken").touch()

    async def start(self, number: int = 1) -> None:
        for _ in range(number):
            words = [self.transport, self.store, str(self.place), self.orders, str(AT_LEAST)]
            self.processes.append(await asyncio.create_subprocess_exec(sys.executable, "-c", _WORKER, *words))

    def mend(self) -> None:
        (self.place / "broken").unlink()

    @property
    def done(self) -> set[str]:
        log = self.place / "log"
        return set(log.read_text().split()) if log.exists() else set()

    async def end(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(asyncio.wait_for(process.wait(), 60) for process in self.processes))


@pytest.fixture
def sqlite(tmp_path: Path) -> Shop:
    return Shop(f"sqlite:///{tmp_path / 'queue.db'}", tmp_path, "orders")


@pytest.fixture
def redis(tmp_path: Path, redis_server: Redis) -> Shop:
    return Shop(f"{redis_server.url}?prefix=storm-{secrets.token_hex(4)}", tmp_path, "orders")


@pytest.fixture
def kafka(tmp_path: Path, kafka_server: Kafka) -> Shop:
    name = f"storm-{secrets.token_hex(4)}"
    make_topics(kafka_server, f"{name}.orders", partitions=4)
    options = f"group={name}&counters=sqlite:///{tmp_path / 'counts.db'}&session.timeout.ms=6000"
    return Shop(f"kafka://{kafka_server.bootstrap}/?{options}", tmp_path, f"{name}.orders")


@pytest.fixture
def rabbitmq(tmp_path: Path, rabbitmq_server: RabbitMQ) -> Iterator[Shop]:
    vhost = f"storm-{secrets.token_hex(4)}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{vhost}"
    web.call("PUT", place, credentials=GUEST)
    yield Shop(f"{rabbitmq_server.url.rstrip('/')}/{vhost}?delay=1s", tmp_path, "orders")
    web.call("DELETE", place, credentials=GUEST)


@pytest.fixture
def postgresql(tmp_path: Path, postgresql_server: PostgreSQL) -> Shop:
    return Shop(postgresql_server.new_database(), tmp_path, "orders")


@pytest.fixture(params=["sqlite", "redis", "kafka", "rabbitmq", "postgresql"])
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    made: Shop = request.getfixturevalue(request.param)
    try:
        yield made
    finally:
        await made.end()


@asynccontextmanager
async def on(shop: Shop) -> AsyncIterator[tuple[Redrive, Service]]:
    """The same queue and store, as a server or a command sees it: without a handler."""
    settings = Settings(store=shop.store, transports={"default": shop.transport}, lease=timedelta(seconds=5))
    async with Redrive(settings=settings) as app:
        app.declare(shop.orders)
        yield app, Service(app)


async def buried(app: Redrive) -> set[str]:
    page = await app.store.letters.search(Query(), limit=10_000)
    return {letter.message.id for letter in page.letters}


async def test_few_are_buried_and_the_others_go_through_when_it_is_mended(shop: Shop) -> None:
    async with on(shop) as (app, service):
        sent = {f"m{number}" for number in range(MESSAGES)}
        await app.send_messages([app.message(shop.orders, b"", id=id, key=id) for id in sorted(sent)])
        await shop.start(WORKERS)

        async def stormed() -> bool:
            return any(pause.storm for pause in await service.pauses())

        await until(stormed, what="the source is in a storm")
        (pause,) = await service.pauses()
        assert (pause.source, pause.storm, pause.by) == (shop.orders, True, "the storm guard")
        assert (await service.stats()).sources[0].paused is not None
        shop.processes[0].kill()  # also if it is the one that probes
        await shop.processes[0].wait()
        shop.mend()

        async def accounted() -> bool:
            return shop.done | await buried(app) == sent

        await until(accounted, timeout=180, what="all others have gone through, and none is lost")
        assert 0 < len(await buried(app)) <= (WORKERS + 1) * AT_LEAST, "about as many as it takes to know"

        async def calm() -> bool:
            """A worker that had not seen the storm yet may have done all that was there: then it is tried with what
            comes next."""
            if await service.pauses():
                await app.send_messages([app.message(shop.orders, b"", id=secrets.token_hex(8))])
                await asyncio.sleep(0.2)
                return False
            return True

        await until(calm, what="it goes on by itself")


async def test_a_person_ends_a_storm_or_makes_it_a_pause_that_the_guard_does_not_end(
    tmp_path: Path, redis_server: Redis
) -> None:
    shop = Shop(f"{redis_server.url}?prefix=storm-{secrets.token_hex(4)}", tmp_path, "orders")
    async with on(shop) as (app, service):
        sent = [app.message("orders", b"", id=f"m{number}") for number in range(2 * AT_LEAST)]
        await app.send_messages(sent)
        try:
            await shop.start()

            async def stormed() -> bool:
                return any(pause.storm for pause in await service.pauses())

            await until(stormed, what="the source is in a storm")
            report = await service.pause("orders", actor=acting("ann"), why="I look at it")
            assert report.is_new
            assert [(pause.by, pause.storm) for pause in await service.pauses()] == [("ann", False)]

            async def at_rest() -> bool:
                return not (await app.transport().depths())["orders"].leased

            await until(at_rest, what="what was in hand is given back")
            shop.mend()
            await shop.start()

            async def two() -> bool:
                return len(await service.workers()) == 2

            await until(two, what="another worker is at it")
            assert [(pause.by, pause.storm) for pause in await service.pauses()] == [("ann", False)]
            assert not shop.done
            ended = await service.resume("orders", actor=acting("ann"))
            assert ended is not None
            assert ended.by == "ann"
            left = {message.id for message in sent} - await buried(app)
            await until(lambda: shop.done >= left, what="the rest goes through")
        finally:
            await shop.end()
