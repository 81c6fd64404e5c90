"""A source in a storm: paused over all its workers, probed by one of them, and let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from redrive import Permanent, Policy, Redrive, Storm
from redrive.config.settings import Settings
from redrive.flow.storm import Finished
from redrive.flow.storms import KIND, StormGuard, body_of, storms
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.stores.memory import MemoryStore
from redrive.telemetry.events import Event, SourceStormed, StormEnded, StormProbed
from redrive.testing.clock import ManualClock
from redrive.transports.memory import MemoryTransport
from redrive.upkeep.heartbeat import KIND as WORKER
from redrive.upkeep.heartbeat import Beat, Working
from redrive.upkeep.storming import Others
from redrive.worker import Worker
from tests.actors import acting

RULE = Storm(share=0.5, over="1m", at_least=10, probes=2)


class Shop:
    """An app whose handler fails while something is broken; several may share a queue, a store and a clock."""

    def __init__(self, other: Shop | None = None, *, batch: int | None = None) -> None:
        self.clock: ManualClock = other.clock if other else ManualClock()
        self.store: Any = other.store if other else MemoryStore()
        self.queue: Any = other.queue if other else MemoryTransport(clock=self.clock, lease=timedelta(seconds=60))
        self.facts: list[Event] = []
        self.broken, self.done = True, 0
        self.app = Redrive(transport=self.queue, store=self.store, settings=Settings(batch=5), clock=self.clock)
        self.app.events.subscribe(self.facts.append)
        policy = Policy(attempts=1, storm=RULE)
        if batch is None:
            self.app.handler("orders", policy=policy, concurrency=2)(self.handle)
        else:
            self.app.handler("orders", policy=policy, batch=batch)(self.handle_all)

    async def handle(self, body: bytes) -> None:
        if self.broken:
            raise Permanent("the ledger is gone")
        self.done += 1

    async def handle_all(self, bodies: list[bytes]) -> None:
        for body in bodies:
            await self.handle(body)

    async def send(self, number: int) -> None:
        await self.app.send_messages([self.app.message("orders", b"x") for _ in range(number)])

    async def buried(self) -> int:
        return int(await self.store.letters.count(Query()))

    def seen(self, kind: type[Event]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    async def passes(self, seconds: float) -> None:
        """Let time pass, a little at a time: what it wakes needs turns of the loop."""
        for _ in range(int(seconds * 2)):
            await self.clock.advance(0.5)


@asynccontextmanager
async def at_work(*shops: Shop) -> AsyncIterator[list[asyncio.Task[None]]]:
    workers = [Worker(shop.app, upkeep=False) for shop in shops]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield tasks
    finally:
        for worker in workers:
            worker.stop()
        while not all(task.done() for task in tasks):
            await shops[0].clock.advance(1)


async def in_storm(shop: Shop) -> None:
    for _ in range(200):
        if shop.seen(SourceStormed):
            return
        await shop.clock.advance(0.1)
    raise AssertionError("there is no storm")


@pytest.mark.parametrize("batch", [None, 5])
async def test_few_are_buried_and_the_rest_is_done_when_it_is_mended(batch: int | None) -> None:
    shop = Shop(batch=batch)
    await shop.send(100)
    async with at_work(shop):
        await in_storm(shop)
        assert await shop.buried() == 9, "the tenth shows that it is a storm"
        [(_, state)] = await storms(shop.store.documents)
        assert (state.finished, state.buried) == (10, 10)
        await shop.passes(4)
        assert await shop.buried() == 9
        await shop.passes(4)
        failed = [probe.outcome for probe in shop.seen(StormProbed)]
        assert failed == ["failed"]
        assert await shop.buried() == 10, "a probe is decided by its policy"
        await shop.passes(30)
        assert len(shop.seen(StormProbed)) == 3, "after 5, 10 and 20 seconds"
        shop.broken = False
        await shop.passes(60)
        assert shop.seen(StormEnded)
        assert shop.done == 100 - await shop.buried()
        assert await shop.store.documents.list(KIND) == []


async def test_what_mostly_succeeds_is_no_storm() -> None:
    shop = Shop()
    shop.broken = False
    await shop.send(40)
    async with at_work(shop):
        await shop.passes(2)
        shop.broken = True
        await shop.send(30)
        await shop.passes(2)
    assert await shop.buried() == 30
    assert not shop.seen(SourceStormed)


async def test_another_worker_stops_too_and_probes_when_the_first_is_dead() -> None:
    first = Shop()
    second = Shop(first)
    second.broken = False
    await first.send(30)
    async with at_work(first):
        await in_storm(first)
    # its worker ended while it may have been the one who probes; the storm is kept
    [(document, state)] = await storms(first.store.documents)
    dead = body_of(replace(state, prober="a worker that was killed"))
    assert await first.store.documents.put(KIND, document.id, dead, expect=document.version)
    async with at_work(second):
        await second.passes(10)
        assert second.done == 0, "somebody probes, as far as it knows"
        await second.passes(20)
        assert second.done == 30 - await second.buried()
        assert second.seen(StormEnded)


async def test_a_person_ends_it_and_it_takes_as_many_to_begin_another() -> None:
    shop = Shop()
    await shop.send(100)
    async with at_work(shop):
        await in_storm(shop)
        buried = await shop.buried()
        ended = await Service(shop.app).resume("orders", actor=acting("ann"))
        assert ended is not None
        assert ended.storm
        shop.facts.clear()
        await in_storm(shop)
        assert await shop.buried() == buried + 9


async def test_what_other_workers_finish_counts_before_anything_is_concluded() -> None:
    store = MemoryStore()
    for others, allowed in ((Finished(1000, 0), 20), (Finished(0, 0), 9), (Finished(3, 3), 3), (Finished(2, 6), 1)):
        guard = StormGuard(
            store.documents, ManualClock(), transport="default", source=f"orders-{allowed}", worker="w", rule=RULE
        )

        async def told(others: Finished = others) -> Finished:
            return others

        guard.others = told
        assert await guard.allowance(0, 20) == allowed
        assert guard.is_on is (allowed < 20)


async def test_a_storm_that_comes_slowly_is_seen_over_all_workers_together() -> None:
    guard = StormGuard(
        MemoryStore().documents, ManualClock(), transport="default", source="orders", worker="w", rule=RULE
    )

    async def told() -> Finished:
        return Finished(0, 9)

    guard.others = told
    assert await guard.allowance(0, 1) == 0, "one is enough where others have buried nine"


async def test_beats_of_workers_count_but_for_our_own_and_those_of_the_dead() -> None:
    clock, store = ManualClock(), MemoryStore()
    guard = StormGuard(store.documents, clock, transport="default", source="orders", worker="w", rule=RULE)
    others = Others(store.documents, clock, guard, "me")

    async def beat(id: str, source: str, done: int, buried: int, age: float = 0) -> None:
        at = clock.now() - timedelta(seconds=age)
        working = Working(source, "default", 1, 0, done, buried)
        said = Beat(worker=id, host="h", pid=1, version="", redrive="", started_at=at, at=at, sources=(working,))
        await store.documents.put(WORKER, id, msgspec.to_builtins(said))

    await beat("me", "orders", 1, 1)
    await beat("you", "orders", 10, 5)
    await beat("other", "mails", 100, 100)
    await beat("dead", "orders", 1000, 1000, age=3600)
    assert await others() == (10, 5)
    await beat("dead", "orders", 7, 0, age=3600)  # it lives, and its clock is wrong
    assert await others() == (17, 5)
    await clock.advance(20)
    await beat("dead", "orders", 8, 0, age=3600)
    assert await others() == (8, 0), "one that says nothing any more counts nothing"
