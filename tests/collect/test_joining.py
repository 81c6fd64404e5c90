"""A message that was sent back to somebody else's consumer, and died there again, finds its letter."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.collect.collector import Collector
from redrive.collect.foreign import failure_of, letter_of
from redrive.flow.lineage import sent_back
from redrive.flow.replay import Replays
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.model import Letter, Message, State
from redrive.stores.base import EntryStatus
from redrive.stores.memory import MemoryStore
from redrive.telemetry.events import Events
from redrive.testing.builders import make_message
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from redrive.transports.base import Delivery
from redrive.transports.memory import MemoryTransport

LEASE = timedelta(seconds=30)


class World:
    """Somebody's queue, the queue of their dead, and our store."""

    def __init__(self) -> None:
        self.clock, self.events, self.store = ManualClock(), Events(), MemoryStore()
        self.queue = MemoryTransport(clock=self.clock, lease=LEASE)
        self.deaths = 0
        self.dead = 0  # and not collected

    async def die(self, *messages: Message, **changes: Any) -> None:
        """Their consumer buries these, each as a new record of theirs."""
        self.deaths += 1
        dead = [
            replace(message, id=f"dead-{self.deaths}-{number}", source="dead", enqueued_at=self.clock.now(), **changes)
            for number, message in enumerate(messages)
        ]
        await self.queue.send(dead)
        self.dead += len(dead)

    async def collect(self, source: str = "orders") -> None:
        def read(delivery: Delivery, now: datetime) -> Letter:
            message = replace(delivery.message, source=source)
            failure = failure_of("E", f"at {message.id}", message.enqueued_at)
            return letter_of(message, failure, transport="default", now=now)

        collector = Collector(
            self.queue, "dead", read, self.store, events=self.events, clock=self.clock, lease=LEASE, batch=100
        )
        running = asyncio.create_task(collector.run())
        await until(lambda: collector.collected == self.dead, what="all are collected")
        collector.stop()
        await running
        self.dead = 0

    async def replay(self) -> str:
        replays = Replays(self.store, {"default": self.queue}, self.events, self.clock)
        replay = await replays.start(Query(), actor="ann")
        await replays.run(replay.id, runner="a")
        return replay.id

    async def letters(self) -> list[Letter]:
        return sorted((await self.store.letters.search(Query())).letters, key=lambda letter: letter.message.id)

    async def taken(self) -> list[Message]:
        """What their consumer received again, with our headers."""
        return [delivery.message for delivery in await self.queue.receive("orders", 100)]


async def test_it_rejoins_by_our_header_and_is_failed_in_the_ledger() -> None:
    world = World()
    await world.die(*(make_message(body=b"%d" % number) for number in range(3)))
    await world.collect()
    first = await world.letters()
    replay = await world.replay()
    await world.clock.advance(5)
    await world.die(*(await world.taken())[:2])
    await world.collect()
    again = await world.letters()
    assert [letter.id for letter in again] == [letter.id for letter in first], "no letter is new"
    states = {letter.message.body: (letter.state, len(letter.failures)) for letter in again}
    assert sorted(states.values()) == [(State.EXHAUSTED, 2), (State.EXHAUSTED, 2), (State.SENT, 1)]
    assert [letter.message for letter in again] == [letter.message for letter in first]
    assert await world.store.ledger.tally(replay) == {EntryStatus.FAILED: 2, EntryStatus.SENT: 1}


async def test_the_same_death_collected_twice_changes_nothing() -> None:
    world = World()
    await world.die(make_message())
    await world.collect()
    replay = await world.replay()
    await world.clock.advance(5)
    (back,) = await world.taken()
    for _ in range(2):  # by two groups, as it were: it is one record
        await world.die(back)
        await world.collect()
        (letter,) = await world.letters()
        assert (letter.state, len(letter.failures)) == (State.EXHAUSTED, 2)
    assert await world.store.ledger.tally(replay) == {EntryStatus.FAILED: 1}


@pytest.mark.parametrize(
    "changes",
    [{"body": b"another"}, {"key": b"another"}, {"body": b'{"a":' * 5000}],
    ids=["body", "key", "hostile body"],
)
async def test_another_message_with_copied_headers_is_a_letter_of_its_own(changes: dict[str, Any]) -> None:
    world = World()
    await world.die(make_message(body=b"{}"))
    await world.collect()
    (letter,) = await world.letters()
    replay = await world.replay()
    (back,) = await world.taken()
    await world.clock.advance(5)
    await world.die(back, **changes)
    await world.collect()
    found = await world.letters()
    assert len(found) == 2
    (same,) = [other for other in found if other.id == letter.id]
    assert (same.message, same.state, same.failures) == (letter.message, State.SENT, letter.failures)
    assert await world.store.ledger.tally(replay) == {EntryStatus.SENT: 1}


async def test_a_header_that_names_a_letter_of_another_source_changes_nothing_there() -> None:
    world = World()
    await world.die(make_message())
    await world.collect()
    (letter,) = await world.letters()
    await world.replay()
    (back,) = await world.taken()
    await world.clock.advance(5)
    await world.die(back)
    await world.collect(source="invoices")
    found = await world.letters()
    assert {other.message.source for other in found} == {"orders", "invoices"}
    (same,) = [other for other in found if other.id == letter.id]
    assert (same.state, len(same.failures)) == (State.SENT, 1)


async def test_a_body_that_their_consumer_encoded_anew_is_still_the_same() -> None:
    world = World()
    await world.die(make_message(body=b'{"amount": 10, "to": "x"}'))
    await world.collect()
    await world.replay()
    (back,) = await world.taken()
    await world.clock.advance(5)
    await world.die(back, body=b'{"to":"x","amount":10}')
    await world.collect()
    (again,) = await world.letters()
    assert (again.state, again.message.body) == (State.EXHAUSTED, b'{"amount": 10, "to": "x"}')


async def test_without_our_header_it_rejoins_by_its_id() -> None:
    world = World()
    known = letter_of(
        make_message(id="o-1"), failure_of("E", "", world.clock.now()), transport="default", now=world.clock.now()
    )
    await world.store.letters.record([known])
    replay = await world.replay()
    await world.clock.advance(5)
    await world.queue.send([make_message(id="o-1", source="dead", enqueued_at=world.clock.now())])
    world.dead = 1
    await world.collect()
    (again,) = await world.letters()
    assert (again.id, again.state, len(again.failures)) == (known.id, State.EXHAUSTED, 2)
    assert await world.store.ledger.tally(replay) == {EntryStatus.FAILED: 1}


async def test_all_deaths_of_a_message_are_one_letter_for_who_collects_them_for_the_first_time() -> None:
    """The second record names the letter that the first one becomes in the same batch; a key of ours signed that."""
    world = World()
    await load_keys(world.store, world.clock.now())
    first = make_message()
    await world.die(first)
    (dead,) = await world.queue.receive("dead", 1)
    name = replace(dead.message, source="orders")
    letter = letter_of(name, failure_of("E", "", world.clock.now()), transport="default", now=world.clock.now())
    await world.clock.advance(LEASE.total_seconds() + 1)
    await world.die(sent_back(letter, now=world.clock.now(), replay="r-1"))
    await world.collect()
    (one,) = await world.letters()
    assert (one.id, one.state, len(one.failures)) == (letter.id, State.EXHAUSTED, 2)
