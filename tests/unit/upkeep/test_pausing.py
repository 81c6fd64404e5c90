"""A worker sees what is paused; if nobody can tell, it stays as it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from redrive import Redrive
from redrive.clock import Clock
from redrive.config.settings import Settings
from redrive.errors import StoreUnavailable
from redrive.flow.pauses import KIND, StorePauses
from redrive.service import Service
from redrive.stores.base import Document
from redrive.stores.memory import MemoryStore
from redrive.testing.clock import START, ManualClock
from redrive.testing.waiting import until as until_so
from redrive.transports.base import Delivery, Depth, Paused, SendResult, Settlement
from redrive.transports.memory import MemoryTransport
from redrive.upkeep.heartbeat import EVERY, KEPT, Heartbeat, beats
from redrive.worker import Worker
from tests.actors import acting
from tests.unit.support import SOON, until

ANN = Paused("orders", by="ann", at=START)


class Told:
    """A transport that has no place for pauses."""

    def __init__(self, clock: Clock) -> None:
        self._inner = MemoryTransport(clock=clock, lease=timedelta(seconds=30))
        self.features = self._inner.features
        self.paused: set[str] = set()
        self._changed = asyncio.Event()

    async def set_paused(self, sources: Collection[str]) -> None:
        self.paused = set(sources)
        self._changed.set()

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        while True:
            self._changed.clear()
            if source in self.paused:
                await self._changed.wait()
                continue
            receiving = asyncio.ensure_future(self._inner.receive(source, limit))
            changing = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait([receiving, changing], return_when=asyncio.FIRST_COMPLETED)
                if receiving.done():
                    return receiving.result()
            finally:
                receiving.cancel()
                changing.cancel()

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return await self._inner.extend(deliveries)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        return await self._inner.settle(settlements)

    async def send(self, messages: Sequence[Any]) -> Sequence[SendResult]:
        return await self._inner.send(messages)

    async def depths(self) -> dict[str, Depth]:
        return await self._inner.depths()

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


class Away(MemoryStore):
    """A store whose documents can be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        inner = self.documents.list

        async def listed(
            kind: str, *, limit: int = 1000, after: str | None = None, ascending: bool = False
        ) -> Sequence[Document]:
            if self.is_away:
                raise StoreUnavailable("store", "it is away")
            return await inner(kind, limit=limit, after=after, ascending=ascending)

        self.documents.list = listed  # type: ignore[method-assign]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Away:
    return Away()


@pytest.fixture
async def app(clock: ManualClock, store: Away) -> AsyncIterator[Redrive]:
    async with Redrive(transport=Told(clock), store=store, settings=Settings(concurrency=2), clock=clock) as app:
        app.handler("orders")(_nothing)
        yield app


async def _nothing(order: Any) -> None:
    return None


@asynccontextmanager
async def _working(app: Redrive) -> AsyncIterator[Worker]:
    worker = Worker(app, upkeep=False)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, SOON)


async def test_what_is_not_begun_is_given_back_when_its_source_is_paused(app: Redrive, clock: ManualClock) -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    async def hold(order: int) -> None:
        begun.append(order)
        await go_on.wait()

    del app.handlers["orders"]
    app.handler("orders")(hold)
    for number in range(10):
        await app.send("orders", number)
    async with _working(app):
        await until(lambda: len(begun) == 2)
        assert (await app.transport().depths())["orders"] == Depth(0, 0, 10)
        await Service(app).pause("orders", actor=acting("ann"))
        await clock.advance(2)
        await until_so(lambda: _is_depth(app, 8, 2))
        go_on.set()
        await until_so(lambda: _is_depth(app, 8, 0))
        assert begun == [0, 1]
        await Service(app).resume("orders", actor=acting("ann"))
        await clock.advance(2)
        await until(lambda: sorted(begun) == list(range(10)))


async def _is_depth(app: Redrive, ready: int, leased: int) -> bool:
    return (await app.transport().depths()).get("orders") == Depth(ready, 0, leased)


async def test_a_store_that_is_away_changes_nothing_of_what_is_paused_and_it_is_said_once(
    app: Redrive, store: Away, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    transport: Any = app.transport()
    await Service(app).pause("orders", actor=acting("ann"))
    async with _working(app):
        await until(lambda: transport.paused == {"orders"})
        store.is_away = True
        await clock.advance(10)
        assert transport.paused == {"orders"}
        assert caplog.text.count("what is paused cannot be looked up, and stays as it was (orders)") == 1
        store.is_away = False
        await StorePauses(store.documents, "default", clock).resume("orders")
        await clock.advance(2)
        await until(lambda: not transport.paused)


async def test_a_worker_whose_store_is_away_at_its_start_begins_and_obeys_later(
    app: Redrive, store: Away, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    transport: Any = app.transport()
    await Service(app).pause("orders", actor=acting("ann"))
    store.is_away = True
    with caplog.at_level(logging.WARNING):
        async with _working(app):
            await clock.advance(1)
            assert not transport.paused
            store.is_away = False
            await clock.advance(2)
            await until(lambda: transport.paused == {"orders"})


async def test_pauses_of_two_transports_in_one_store_do_not_mix(store: Away, clock: ManualClock) -> None:
    one, other = StorePauses(store.documents, "kafka", clock), StorePauses(store.documents, "rabbit", clock)
    assert await one.pause(ANN) == ANN
    assert (await one.pauses(), await other.pauses()) == ([ANN], [])
    bob = Paused("orders", by="bob", at=START)
    assert await other.pause(bob) == bob
    assert await one.resume("orders") == ANN
    assert await other.pauses() == [bob]


async def test_of_two_who_pause_at_once_one_is_first_for_both(store: Away, clock: ManualClock) -> None:
    people = [Paused("orders", by=f"p{number}", at=START) for number in range(20)]
    held = await asyncio.gather(*(StorePauses(store.documents, "k", clock).pause(person) for person in people))
    assert len({pause.by for pause in held}) == 1


async def test_a_pause_that_is_over_holds_nobody_up(store: Away, clock: ManualClock) -> None:
    pauses = StorePauses(store.documents, "k", clock)
    await pauses.pause(Paused("orders", by="ann", at=START, until=START + timedelta(minutes=1)))
    await clock.advance(61)
    assert await pauses.pauses() == []
    assert await pauses.pause(ANN) == ANN


async def test_a_document_that_somebody_else_wrote_is_no_pause(store: Away, clock: ManualClock) -> None:
    await store.documents.put(KIND, "x", {"transport": "k", "paused": 7})
    await store.documents.put(KIND, "y", {})
    assert await StorePauses(store.documents, "k", clock).pauses() == []


# -- heartbeats ----------------------------------------------------------------------------------------------------


async def test_a_worker_beats_until_it_ends_and_then_it_is_gone(app: Redrive, store: Away, clock: ManualClock) -> None:
    async with _working(app):
        await clock.advance(1)
        [(number, first)] = (await beats(store.documents)).values()
        assert (number, first.draining, [working.source for working in first.sources]) == (1, False, ["orders"])
        await clock.advance(2 * EVERY.total_seconds())
        [(number, last)] = (await beats(store.documents)).values()
        assert number == 3
        assert last.at - first.at == 2 * EVERY
    assert await beats(store.documents) == {}


async def test_a_worker_that_is_told_to_stop_says_so_at_once(app: Redrive, store: Away, clock: ManualClock) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hold(order: Any) -> None:
        begun.set()
        await go_on.wait()

    del app.handlers["orders"]
    app.handler("orders")(hold)
    await app.send("orders", 1)
    async with _working(app) as worker:
        await asyncio.wait_for(begun.wait(), SOON)
        worker.stop()
        await clock.advance(0)
        [(_, beat)] = (await beats(store.documents)).values()
        assert (beat.draining, beat.sources[0].in_hand) == (True, 1)
        go_on.set()


async def test_what_was_not_heard_of_for_a_day_is_forgotten(app: Redrive, store: Away, clock: ManualClock) -> None:
    killed = asyncio.create_task(Heartbeat(app, {}).run())
    await clock.advance(1)
    killed.cancel()
    assert len(await beats(store.documents)) == 1
    await clock.advance(KEPT.total_seconds() + 10)
    async with _working(app):
        await clock.advance(1)
        assert len(await beats(store.documents)) == 1, "only the new one"
