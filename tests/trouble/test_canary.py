"""On every broker: a canary stops a bad replay, a good one goes through its steps, and keys keep their order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive import Message, Policy, Redrive
from redrive.config.settings import Settings
from redrive.flow.guard import Guard
from redrive.flow.replay import Replay, ReplayState
from redrive.flow.replay_document import PausedBy
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.testing.waiting import until
from redrive.worker import Worker
from tests.actors import acting
from tests.conformance.test_kafka_transport import make_topics
from tests.servers import web
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.servers.redis import Redis

LETTERS, KEYS, CANARY = 24, 4, 4


class Shop:
    """Orders that all die until somebody mends them; and what came after that, in order."""

    def __init__(self, transport: str, store: str, source: str) -> None:
        self.app = Redrive(transport=transport, store=store, settings=replace(Settings(), batch=10))
        self.service = Service(self.app)
        self.source = source
        self.is_mended = False
        self.came: list[tuple[bytes | None, str]] = []
        self.app.handler(source, policy=Policy(attempts=1))(self.charge)

    async def charge(self, order: dict[str, int], message: Message) -> None:
        if message.was_sent_back:
            self.came.append((message.key, message.id))
        if not self.is_mended:
            raise ConnectionError("the card gateway does not answer")

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Its orders are dead letters, and its worker runs."""
        async with self.app:
            worker = Worker(self.app, upkeep=False)
            task = asyncio.create_task(worker.run())
            try:
                await self._die()
                yield
            finally:
                worker.stop()
                await asyncio.wait_for(task, 60)

    async def _die(self) -> None:
        for number in range(LETTERS):
            key = b"key-%d" % (number % KEYS)
            await self.app.send(self.source, {"n": number}, id=f"order-{number:03}", key=key)
        await until(self._all_died, what="all orders are letters")

    async def _all_died(self) -> bool:
        return await self.service.count(Query(states=(State.PENDING,))) == LETTERS

    async def replayed(self, **how: object) -> Replay:
        """A replay of all of them, run until it is paused or has ended."""
        replay = await self.service.replay(Query(), every=True, actor=acting("ann"), ordered=True, **how)  # type: ignore[arg-type]
        return await self.run(replay.id)

    async def run(self, id: str) -> Replay:
        async def is_still() -> bool:
            return (await self.service.run_replay(id)).replay.state is not ReplayState.RUNNING

        await until(is_still, what=f"replay {id} has ended or is paused")
        return await self.service.replays.get(id)

    async def outcomes(self, id: str) -> dict[EntryStatus, int]:
        return dict((await self.service.replay_report(id)).entries)


async def _stops_then_goes(shop: Shop) -> None:
    """The canary dies, so nothing else is sent; mended and resumed, all the others go, each key in order."""
    async with shop.open():
        paused = await shop.replayed(guard=Guard(canary=CANARY, ramp=(50, 100)))
        assert paused.state is ReplayState.PAUSED
        assert paused.paused is not None
        assert paused.paused.by is PausedBy.GUARD
        assert paused.paused.why.endswith("the bug is still there")
        assert (await shop.outcomes(paused.id))[EntryStatus.SELECTED] == LETTERS - CANARY
        assert len(shop.came) <= CANARY
        shop.is_mended = True
        shop.came.clear()
        again = await shop.replayed(guard=Guard(canary=CANARY, ramp=(50, 100)))
        assert again.state is ReplayState.SENT
        await until(lambda: _is_resolved(shop, again.id), what="all are resolved")
        _check_order(shop)


async def _is_resolved(shop: Shop, id: str) -> bool:
    return await shop.outcomes(id) == {EntryStatus.RESOLVED: LETTERS}


def _check_order(shop: Shop) -> None:
    """Each came, and of each key in the order in which they died: one of the canary died a second time, later."""
    first = list(dict.fromkeys(shop.came))
    assert len(first) == LETTERS
    for number in range(KEYS):
        ids = [id for key, id in first if key == b"key-%d" % number]
        assert ids == [*sorted(ids)[1:], sorted(ids)[0]] or ids == sorted(ids)


async def test_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    await _stops_then_goes(Shop(url, url, "orders"))


async def test_redis(redis_server: Redis, tmp_path: Path) -> None:
    source = f"canary-{secrets.token_hex(4)}"
    await _stops_then_goes(Shop(redis_server.url, f"sqlite:///{tmp_path}/redrive.db", source))


async def test_kafka(kafka_server: Kafka, tmp_path: Path) -> None:
    name = f"canary-{secrets.token_hex(4)}"
    make_topics(kafka_server, name, partitions=2)
    url = f"kafka://{kafka_server.bootstrap}/?group={name}&counters=sqlite:///{tmp_path / 'counts.db'}"
    await _stops_then_goes(Shop(url, f"sqlite:///{tmp_path}/redrive.db", name))


@pytest.fixture
def vhost(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    name = f"canary-{secrets.token_hex(4)}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{name}"
    web.call("PUT", place, credentials=GUEST)
    yield f"{rabbitmq_server.url.rstrip('/')}/{name}"
    web.call("DELETE", place, credentials=GUEST)


async def test_rabbitmq(vhost: str, tmp_path: Path) -> None:
    await _stops_then_goes(Shop(vhost, f"sqlite:///{tmp_path}/redrive.db", "orders"))


async def test_postgresql(postgresql_url: str) -> None:
    await _stops_then_goes(Shop(postgresql_url, postgresql_url, "orders"))
