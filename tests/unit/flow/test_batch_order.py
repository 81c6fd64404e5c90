"""Batches where the transport keeps order: several of one lane in a batch, and nobody overtakes one that failed."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import Failed, Message, Policy, constant, immediate
from redrive.errors import StoreUnavailable
from redrive.flow.batches import BatchConsumer
from redrive.flow.gather import BatchLanes
from redrive.telemetry.events import BackendDown, MessageBuried
from tests.unit.flow.test_order import Shelved, world_of
from tests.unit.support import running, until

NAMES = ("a1", "b1", "a2", "a3", "b2", "c1", "a4")


class Notes:
    """A batch handler that writes down what it does, and fails each message as often as it is told: by name, or with
    its whole batch."""

    def __init__(self, *, whole: bool = False, **failing: int) -> None:
        self.whole = whole
        self.failing = failing
        self.calls: list[list[str]] = []
        self.done: list[str] = []
        self.running: set[bytes | None] = set()

    async def handler(self, bodies: list[Any], messages: list[Message]) -> None:
        keys = {message.key for message in messages}
        assert not keys & self.running, "two batches of one key at a time"
        self.running |= keys
        self.calls.append([message.id for message in messages])
        await asyncio.sleep(0)
        self.running -= keys
        errors = {
            place: ConnectionError("not yet")
            for place, message in enumerate(messages)
            if message.attempt <= self.failing.get(message.id, 0)
        }
        if errors and self.whole:
            raise errors[min(errors)]
        self.done += [message.id for place, message in enumerate(messages) if place not in errors]
        raise Failed(errors)

    def last_done(self, key: str) -> list[str]:
        """The messages of that key in the order in which they were done for the last time."""
        mine = [name for name in self.done if name[0] == key]
        return sorted(set(mine), key=lambda name: len(mine) - mine[::-1].index(name))


def _open(transport: Shelved) -> list[str]:
    return [record.message.id for record in transport.partition.open if not record.done]


async def test_several_of_one_key_are_in_one_batch_in_their_order() -> None:
    world, transport = world_of(*NAMES)
    notes = Notes()
    async with running(BatchConsumer(world.context(notes.handler, size=7))):
        await until(lambda: transport.partition.base == len(NAMES))
    assert notes.calls == [list(NAMES)]
    assert transport.released == []


@pytest.mark.parametrize("whole", [False, True])
async def test_what_is_behind_a_failure_of_its_key_is_handled_again_after_it(whole: bool) -> None:
    world, transport = world_of(*NAMES)
    notes = Notes(a2=1, whole=whole)
    policy = Policy(attempts=3, backoff=constant("10s"))
    async with running(BatchConsumer(world.context(notes.handler, policy, size=7))):
        await until(lambda: _open(transport) == ["a2", "a3", "a4"] and transport.shelf.leased == 0)
        assert transport.released == ["a3", "a4"]
        await world.clock.advance(11)
        await world.clock.advance(2)
        await until(lambda: transport.partition.base == len(NAMES))
    assert notes.calls[-2:] == [["a2"], ["a3", "a4"]]
    for key in "abc":
        assert notes.last_done(key) == [name for name in NAMES if name[0] == key]


async def test_what_steps_aside_holds_up_nothing() -> None:
    world, transport = world_of("a1", "a2", "a3")
    notes = Notes(a1=1)
    policy = Policy(attempts=3, backoff=constant("10s"), holds="nothing")
    async with running(BatchConsumer(world.context(notes.handler, policy, size=3))):
        await until(lambda: notes.done == ["a2", "a3"])
        await until(lambda: transport.shelf.leased == 0)
        assert transport.released == []


async def test_a_buried_one_lets_those_behind_it_be_done() -> None:
    world, transport = world_of("a1", "a2", "a3")
    notes = Notes(a1=9)
    async with running(BatchConsumer(world.context(notes.handler, Policy(attempts=1), size=3))):
        await until(lambda: transport.partition.base == 3)
    assert notes.calls == [["a1", "a2", "a3"]]
    assert [event.message for event in world.seen(MessageBuried)] == ["a1"]


async def test_while_a_letter_cannot_be_written_what_is_behind_it_is_not_done() -> None:
    world, transport = world_of("a1", "a2", "b1")
    notes = Notes(a1=9)
    world.calls.break_down("letters.record", StoreUnavailable("letters", "disk is full"))
    async with running(BatchConsumer(world.context(notes.handler, Policy(attempts=1), size=3))):
        await until(lambda: bool(world.seen(BackendDown)) and "a2" in transport.released)
        assert _open(transport) == ["a1", "a2"]
        world.calls.mend("letters.record")
        await world.clock.advance(130)
        await until(lambda: transport.partition.base == 3)
    assert [call.count("a1") for call in notes.calls].count(1) == 1, "it was attempted again to be written"


async def test_what_cannot_be_read_is_buried_after_what_is_before_it_in_its_key() -> None:
    world, transport = world_of("a1", "a2", "a3", "b1")
    transport.partition.open[1].message = replace(transport.partition.open[1].message, body=b"{")
    notes = Notes(a1=1)

    async def handler(bodies: list[dict[str, Any]], messages: list[Message]) -> None:
        await notes.handler(bodies, messages)

    policy = Policy(attempts=3, backoff=constant("10s"))
    async with running(BatchConsumer(world.context(handler, policy, size=4))):
        await until(lambda: transport.released == ["a2", "a3"])
        assert world.seen(MessageBuried) == []
        await world.clock.advance(11)
        await world.clock.advance(2)
        await until(lambda: transport.partition.base == 4)
    assert [event.message for event in world.seen(MessageBuried)] == ["a2"]
    assert notes.last_done("a") == ["a1", "a3"]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(20))
async def test_order_holds_however_batches_fetching_and_settling_fall_together(seed: int, whole: bool) -> None:
    chance = random.Random(seed)
    names = [f"{chance.choice('abcdef')}{number}" for number in range(150)]
    world, transport = world_of(*names, suspects=chance.randrange(10))
    transport.pauses = lambda: chance.randrange(4)
    notes = Notes(whole=whole, **{name: 1 for name in names if chance.random() < 0.1})
    policy = Policy(attempts=3, backoff=immediate(), batch_failure=chance.choice(["halves", "each"]))
    context = world.context(
        notes.handler, policy, concurrency=chance.randint(1, 3), batch=9, size=7, within=timedelta()
    )
    async with running(BatchConsumer(context)):
        await until(lambda: transport.partition.base == len(names))
    for key in "abcdef":
        assert notes.last_done(key) == [name for name in names if name[0] == key]


def test_a_lane_is_gathered_for_one_batch_at_a_time() -> None:
    class Item:
        def __init__(self, name: str, alone: bool = False) -> None:
            self.name, self.lane, self.alone = name, name[0], alone

    lanes: BatchLanes[Item] = BatchLanes(alone=lambda item: item.alone)
    items = {name: Item(name, name == "c1") for name in ("a1", "b1", "a2", "c1", "a3", "c2")}
    lanes.add(items.values())
    first: list[Item] = []
    lanes.gather(first, 3)
    assert [item.name for item in first] == ["a1", "b1", "a2"]
    second: list[Item] = []
    lanes.gather(second, 3)
    assert second == []
    assert lanes.next_alone() is items["c1"]
    lanes.free(["a", "b"])
    lanes.gather(second, 3)
    assert [item.name for item in second] == ["a3"]
    lanes.free(["c"])
    lanes.gather(second, 3)
    assert [item.name for item in second] == ["a3", "c2"]
    assert lanes.drain() == []
