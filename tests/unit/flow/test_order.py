"""Where the transport keeps order: those of one lane one after the other, and what is behind a failure waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from redrive import Message, Policy, constant, immediate
from redrive.errors import StoreUnavailable
from redrive.flow.receive import Consumer
from redrive.model import Done, Holds, Letter, Release, Retry
from redrive.telemetry.events import BackendDown, LetterRefused, MessageBuried
from redrive.testing.builders import make_message
from redrive.transports.base import Delivery, Depth, Settlement
from redrive.transports.kafka.shelf import Partition, Record, Shelf
from redrive.transports.memory import MemoryTransport
from tests.unit.support import SOON, World, running, until


class Shelved(MemoryTransport):
    """The shelf of Kafka's transport as a whole one: one partition, in memory."""

    def __init__(self, world: World, messages: Sequence[Message], suspects: int = 0) -> None:
        super().__init__(clock=world.clock, lease=world.lease)
        self.world = world
        self.shelf = Shelf(lease=1e9)
        self.partition = Partition(("orders", 0), 0)
        self.shelf.assign(self.partition)
        records = [Record(self.partition, n, one, n < suspects) for n, one in enumerate(messages)]
        self.shelf.add(records, 0)
        self.changed = asyncio.Event()
        self.released: list[str] = []
        self.naps: Callable[[], int] = lambda: 0

    def keep_order(self, source: str, holds: Holds) -> None: ...

    def is_ours(self, delivery: Delivery) -> bool:
        record, turn = delivery.token
        return bool(record.turn == turn and record.partition.alive)

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        while True:
            self.changed.clear()
            if taken := self.shelf.take(limit, self.world.clock.elapsed()):
                await self._pause()
                taken = self.shelf.still_first(taken, self.world.clock.elapsed())
            if taken:
                return self.shelf.deliveries(taken)
            at = self.shelf.next_time()
            await self.world.clock.wait(self.changed, 60.0 if at is None else at - self.world.clock.elapsed())

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        await self._pause()
        lost = [one.delivery for one in settlements if not self.is_ours(one.delivery)]
        for one in settlements:
            record, now = one.delivery.token[0], self.world.clock.elapsed()
            match one.outcome:
                case _ if one.delivery in lost:
                    pass
                case Done():
                    self.shelf.finish([record])
                case Retry(after):
                    record.tried += 1
                    self.shelf.give_back(record, now + after.total_seconds())
                case Release(pause):
                    self.released.append(one.delivery.message.id)
                    self.shelf.give_back(record, now + pause.total_seconds())
        self.changed.set()
        return lost

    async def _pause(self) -> None:
        for _ in range(self.naps()):
            await asyncio.sleep(0)

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return [one for one in deliveries if not self.is_ours(one)]

    async def depths(self) -> dict[str, Depth]:
        return {}


def world_of(*names: str, suspects: int = 0) -> tuple[World, Shelved]:
    """`a1` is the first message of key a."""
    world = World()
    transport = Shelved(world, [make_message(id=name, key=name[:1].encode()) for name in names], suspects)
    world.transport = transport
    return world, transport


class Notes:
    """A handler that writes down what it does, and fails as often as it is told for each message."""

    def __init__(self, **failing: int) -> None:
        self.failing = failing
        self.attempts: list[str] = []
        self.done: list[str] = []
        self.running: set[bytes | None] = set()

    async def handler(self, body: Any, message: Message) -> None:
        assert message.key not in self.running
        self.running.add(message.key)
        self.attempts.append(message.id)
        await asyncio.sleep(0)
        self.running.discard(message.key)
        if message.attempt <= self.failing.get(message.id, 0):
            raise ConnectionError("not yet")
        self.done.append(message.id)


NAMES = ("a1", "b1", "a2", "a3", "b2", "c1", "a4")


async def test_a_failure_holds_up_its_lane_until_it_worked_and_the_others_go_on() -> None:
    world, transport = world_of(*NAMES)
    notes = Notes(a1=2, b2=1)
    context = world.context(notes.handler, Policy(attempts=3, backoff=constant("10s")), concurrency=4)
    async with running(Consumer(context)):
        await until(lambda: {"b1", "c1"} <= set(notes.done))
        await world.clock.advance(5)
        assert notes.attempts.count("a1") == 1
        assert "a2" not in notes.attempts
        await world.clock.advance(30)
        await until(lambda: len(notes.done) == len(NAMES))
    for key in "abc":
        assert [name for name in notes.done if name[0] == key] == [name for name in NAMES if name[0] == key]
    assert transport.partition.base == len(NAMES)


@pytest.mark.parametrize("seed", range(20))
async def test_order_holds_however_fetching_attempting_and_settling_fall_together(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"{chance.choice('abcd')}{number}" for number in range(200)]
    world, transport = world_of(*names)
    transport.naps = lambda: chance.randrange(4)
    notes = Notes(**{name: 1 for name in names if chance.random() < 0.2})
    policy = Policy(attempts=3, backoff=immediate())
    async with running(Consumer(world.context(notes.handler, policy, concurrency=3, batch=5))):
        await until(lambda: len(notes.done) == len(names))
    for key in "abcd":
        assert [name for name in notes.done if name[0] == key] == [name for name in names if name[0] == key]


async def test_what_steps_aside_holds_up_nothing() -> None:
    world, transport = world_of("a1", "a2", "a3")
    notes = Notes(a1=1)
    policy = Policy(attempts=3, backoff=constant("10s"), holds="nothing")
    async with running(Consumer(world.context(notes.handler, policy))):
        await until(lambda: notes.done == ["a2", "a3"])
        assert transport.released == []


async def test_while_a_letter_cannot_be_written_what_is_behind_it_does_not_go_first() -> None:
    world, transport = world_of("a1", "a2", "b1")
    notes = Notes(a1=9)
    world.calls.break_down("letters.record", StoreUnavailable("letters", "disk is full"))
    async with running(Consumer(world.context(notes.handler, Policy(attempts=1), concurrency=3))):
        await until(lambda: bool(world.seen(BackendDown)) and notes.done == ["b1"])
        await world.clock.advance(20)
        assert "a2" not in notes.attempts
        world.calls.mend("letters.record")
        await world.clock.advance(30)
        await until(lambda: notes.done == ["b1", "a2"])
    assert [fact.message for fact in world.seen(MessageBuried)] == ["a1"]
    assert transport.partition.base == 3


@pytest.mark.parametrize("arrives", ["together", "later"])
async def test_a_letter_that_the_store_refuses_holds_up_its_lane_and_no_other(arrives: str) -> None:
    world, transport = world_of("a1", "b1", "a2", "b2", "a3")
    notes = Notes(a1=9, b1=9)
    record, mended = world.letters.letters.record, asyncio.Event()

    async def refusing(letters: Sequence[Letter]) -> None:
        if not mended.is_set() and any(letter.message.id == "a1" for letter in letters):
            raise ValueError("no such value")
        await record(letters)

    world.letters.letters.record = refusing  # type: ignore[method-assign]
    batch = 10 if arrives == "together" else 1
    async with running(Consumer(world.context(notes.handler, Policy(attempts=1), concurrency=3, batch=batch))):
        await until(lambda: bool(world.seen(LetterRefused)) and notes.done == ["b2"])
        await world.clock.advance(59)
        assert notes.attempts.count("a1") == 1
        assert notes.done == ["b2"], "what is behind it went first"
        mended.set()
        await world.clock.advance(2)
        await until(lambda: notes.done == ["b2", "a2", "a3"])
    assert [fact.message for fact in world.seen(MessageBuried)] == ["b1", "a1"]
    assert transport.partition.base == 5


async def test_stopping_gives_back_what_is_behind_in_every_lane() -> None:
    world, transport = world_of(*NAMES)
    inside, gate = asyncio.Event(), asyncio.Event()
    handled: list[str] = []

    async def handler(body: Any, message: Message) -> None:
        inside.set()
        await gate.wait()
        handled.append(message.id)

    consumer = Consumer(world.context(handler, concurrency=5))
    task = asyncio.create_task(consumer.run(timedelta(seconds=SOON)))
    await inside.wait()
    await until(lambda: consumer.lanes.busy == 3)
    consumer.stop()
    gate.set()
    await asyncio.wait_for(task, SOON)
    assert sorted(handled) == ["a1", "b1", "c1"]
    assert sorted(transport.released) == ["a2", "a3", "a4", "b2"]


async def test_what_was_taken_from_us_before_it_began_is_not_attempted() -> None:
    world, transport = world_of("a1", "a2", "b1")
    gate = asyncio.Event()
    handled: list[str] = []

    async def handler(body: Any, message: Message) -> None:
        handled.append(message.id)
        await gate.wait()

    async with running(Consumer(world.context(handler, concurrency=1))):
        await until(lambda: handled == ["a1"])
        transport.shelf.revoke([("orders", 0)])
        gate.set()
        for _ in range(50):
            await asyncio.sleep(0)
    assert handled == ["a1"]


async def test_a_suspect_on_its_last_attempt_is_alone_and_still_in_order() -> None:
    world, _ = world_of("a1", "a2", "b1", "a3", suspects=3)
    notes = Notes()
    async with running(Consumer(world.context(notes.handler, Policy(attempts=1), concurrency=5))):
        await until(lambda: len(notes.done) == 4)
    assert [name for name in notes.attempts if name[0] == "a"] == ["a1", "a2", "a3"]
    assert len(notes.attempts) == 4


async def test_a_suspect_that_is_taken_from_us_before_it_began_holds_up_nothing() -> None:
    """A rebalance between its receipt and its attempt: whoever waits for it to be settled must not wait for ever."""
    world, transport = world_of("a1", suspects=1)
    notes, receive = Notes(), transport.receive

    async def moved(source: str, limit: int) -> Sequence[Delivery]:
        deliveries = await receive(source, limit)
        transport.receive = receive  # type: ignore[method-assign]
        transport.shelf.revoke([("orders", 0)])
        again = Partition(("orders", 0), 0)
        transport.shelf.assign(again)
        transport.shelf.add([Record(again, 0, deliveries[0].message)], 0)
        return deliveries

    transport.receive = moved  # type: ignore[method-assign]
    async with running(Consumer(world.context(notes.handler, Policy(attempts=1)))):
        await until(lambda: notes.done == ["a1"])
