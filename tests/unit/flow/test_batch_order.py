"""Batches where the transport keeps order: several of one lane in a batch, and nobody overtakes one that failed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import Failed, Message, Policy, constant, immediate
from redrive.errors import StoreUnavailable
from redrive.flow.batches import BatchConsumer
from redrive.flow.gather import BatchLanes
from redrive.telemetry.events import BackendDown, BatchSettled, MessageBuried
from redrive.testing.builders import make_message
from redrive.transports.base import Block, Delivery
from redrive.transports.kafka.block import RecordBlock, are_plain
from redrive.transports.kafka.shelf import Partition, Record
from tests.unit.flow.test_order import Shelved, world_of
from tests.unit.support import SOON, World, running, until

NAMES = ("a1", "b1", "a2", "a3", "b2", "c1", "a4")


class Raw:
    """A record as Kafka's driver gives it."""

    def __init__(self, message: Message) -> None:
        self.message = message

    def __len__(self) -> int:
        return len(self.message.body)

    def value(self) -> bytes:
        return self.message.body

    def key(self) -> bytes | None:
        return self.message.key


class InBlocks(Shelved):
    """Hands out blocks where it can, as Kafka's transport does."""

    def __init__(self, world: World, messages: Sequence[Message], suspects: int = 0) -> None:
        super().__init__(world, (), 0)
        self.blocks: list[int] = []
        self.settled: list[int] = []
        self.partition.read = lambda raw, _: raw.message
        records = [
            Record(self.partition, n, message, True) if n < suspects else _untouched(self.partition, n, message)
            for n, message in enumerate(messages)
        ]
        self.shelf.add(records, 0)

    async def receive_block(self, source: str, limit: int) -> Sequence[Delivery] | Block:
        deliveries = await self.receive(source, limit)
        records = [delivery.token[0] for delivery in deliveries]
        if not are_plain(records):
            return deliveries
        self.blocks.append(len(records))
        return RecordBlock.of(self.shelf, records)

    def settle_block(self, block: Block) -> Sequence[Delivery]:
        assert isinstance(block, RecordBlock)
        self.settled.append(len(block))
        lost = block.finish()
        self.changed.set()
        return lost


def _untouched(partition: Partition, number: int, message: Message) -> Record:
    return Record(partition, number, None, False, Raw(message))


def in_blocks(*names: str, suspects: int = 0) -> tuple[World, InBlocks]:
    """As `world_of`. Each body is the name of its message."""
    world = World()
    messages = [make_message(id=name, key=name[:1].encode(), body=name.encode()) for name in names]
    transport = InBlocks(world, messages, suspects)
    world.transport = transport
    return world, transport


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

    async def by_bodies(self, bodies: list[str]) -> None:
        """The same of a handler that takes only bodies, each the name of its message: it fails each once."""
        calls = [name for call in self.calls for name in call]
        first = {name for name in bodies if name not in calls}
        keys = [name[:1].encode() for name in bodies]
        attempts = [1 if name in first else 2 for name in bodies]
        known = zip(bodies, keys, attempts, strict=True)
        await self.handler(bodies, [make_message(id=name, key=key, attempt=n) for name, key, n in known])

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
    transport.naps = lambda: chance.randrange(4)
    notes = Notes(whole=whole, **{name: 1 for name in names if chance.random() < 0.1})
    policy = Policy(attempts=3, backoff=immediate(), batch_failure=chance.choice(["halves", "each"]))
    context = world.context(
        notes.handler, policy, concurrency=chance.randint(1, 3), batch=9, size=7, within=timedelta()
    )
    async with running(BatchConsumer(context)):
        await until(lambda: transport.partition.base == len(names))
    for key in "abcdef":
        assert notes.last_done(key) == [name for name in names if name[0] == key]


# -- blocks ----------------------------------------------------------------------------------------------------------


async def test_a_block_is_handed_over_and_settled_as_a_whole() -> None:
    world, transport = in_blocks(*NAMES)
    notes = Notes()
    async with running(BatchConsumer(world.context(notes.by_bodies, size=7))):
        await until(lambda: transport.partition.base == len(NAMES))
        await until(lambda: bool(world.seen(BatchSettled)))
    assert (notes.calls, transport.settled) == ([list(NAMES)], [7])
    assert [event.done for event in world.seen(BatchSettled)] == [7]


async def test_blocks_are_joined_and_cut_to_the_size_of_a_batch() -> None:
    world, transport = in_blocks(*[f"a{n}" for n in range(23)])
    notes = Notes()
    async with running(BatchConsumer(world.context(notes.by_bodies, size=5, batch=7))):
        await until(lambda: len(notes.calls) == 4)
        await world.clock.advance(2)
        await until(lambda: transport.partition.base == 23)
    assert [len(call) for call in notes.calls] == [5, 5, 5, 5, 3]
    assert notes.done == [f"a{n}" for n in range(23)]


@pytest.mark.parametrize("whole", [False, True])
async def test_a_block_of_which_one_fails_is_taken_apart(whole: bool) -> None:
    world, transport = in_blocks(*NAMES)
    notes = Notes(a2=1, whole=whole)
    policy = Policy(attempts=3, backoff=constant("10s"))
    context = world.context(notes.by_bodies, policy, size=7)
    async with running(BatchConsumer(context)):
        await until(lambda: len(notes.calls) >= 1)
        await world.clock.advance(30)
        await until(lambda: transport.partition.base == len(NAMES))
    for key in "abc":
        assert notes.last_done(key) == [name for name in NAMES if name[0] == key]


async def test_a_block_with_something_unreadable_is_taken_apart() -> None:
    world, transport = in_blocks(*NAMES)
    transport.partition.open[2].raw.message = make_message(id="bad", body=b"\xff", key=b"z")
    notes = Notes()
    async with running(BatchConsumer(world.context(notes.by_bodies, size=7))):
        await world.clock.advance(3)
        await until(lambda: transport.partition.base == len(NAMES))
    assert [event.message for event in world.seen(MessageBuried)] == ["bad"]
    assert sorted(notes.done) == sorted(name for name in NAMES if name != "a2")


async def test_of_a_block_that_was_taken_from_us_nothing_is_handled() -> None:
    world, transport = in_blocks(*NAMES)
    notes = Notes()
    context = world.context(notes.by_bodies, size=20)
    async with running(BatchConsumer(context)):
        await until(lambda: transport.blocks == [7])
        transport.shelf.revoke([transport.partition.place])
        await world.clock.advance(3)
    assert notes.calls == []


async def test_a_block_that_is_gathered_when_we_stop_is_given_back() -> None:
    world, transport = in_blocks(*NAMES)
    async with running(BatchConsumer(world.context(Notes().by_bodies, size=20))):
        await until(lambda: transport.blocks == [7])
    assert transport.released == list(NAMES)
    assert transport.shelf.leased == 0


async def test_a_block_in_hand_at_the_end_of_the_grace_is_given_back() -> None:
    world, transport = in_blocks(*NAMES)
    entered = asyncio.Event()

    async def hangs(bodies: list[str]) -> None:
        entered.set()
        await asyncio.Event().wait()

    consumer = BatchConsumer(world.context(hangs, size=7))
    task = asyncio.create_task(consumer.run(timedelta()))
    await asyncio.wait_for(entered.wait(), SOON)
    consumer.stop()
    await asyncio.wait_for(task, SOON)
    assert transport.released == list(NAMES)


async def test_leases_of_blocks_are_renewed() -> None:
    world, transport = in_blocks(*NAMES)
    extended: list[int] = []

    async def extend(deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        extended.append(len(deliveries))
        return []

    transport.extend = extend  # type: ignore[method-assign]
    async with running(BatchConsumer(world.context(Notes().by_bodies, size=20, within=timedelta(hours=1)))):
        await until(lambda: transport.blocks == [7])
        await world.clock.advance(30)
        await until(lambda: extended == [7])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(20))
async def test_order_holds_with_blocks_too(seed: int, whole: bool) -> None:
    chance = random.Random(seed)
    names = [f"{chance.choice('abcdef')}{number}" for number in range(150)]
    world, transport = in_blocks(*names, suspects=chance.randrange(10))
    transport.naps = lambda: chance.randrange(4)
    notes = Notes(whole=whole, **{name: 1 for name in names if chance.random() < 0.03})
    policy = Policy(attempts=5, backoff=immediate(), batch_failure=chance.choice(["halves", "each"]))
    context = world.context(notes.by_bodies, policy, batch=9, size=7, within=timedelta())
    async with running(BatchConsumer(context)):
        await until(lambda: transport.partition.base == len(names))
    for key in "abcdef":
        assert notes.last_done(key) == [name for name in names if name[0] == key]
    assert transport.settled, "nothing was settled as a block"


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
