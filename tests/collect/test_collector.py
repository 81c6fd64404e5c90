"""What the collector does with letters that a store will not have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from redrive.collect.collector import Collector
from redrive.collect.foreign import failure_of, letter_of
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.model import Category, Letter, Reason
from redrive.proof import forget
from redrive.stores.memory import MemoryLetters, MemoryStore
from redrive.telemetry.events import Event, Events, LetterRefused
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from redrive.transports.base import Delivery
from redrive.transports.kafka.dlq import letter_in, record_of
from redrive.transports.memory import MemoryTransport

LEASE = timedelta(seconds=30)


class Picky(MemoryLetters):
    """Will not have what is bad, until it is mended."""

    mended = False

    async def record(self, letters: Sequence[Letter]) -> None:
        if not self.mended and any(letter.message.id == "bad" for letter in letters):
            raise OverflowError("too large a number")
        await super().record(letters)


class Extended(MemoryTransport):
    """Notes how many leases it is asked to extend."""

    def __init__(self, *, clock: ManualClock, lease: timedelta) -> None:
        super().__init__(clock=clock, lease=lease)
        self.asked: list[int] = []

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        self.asked.append(len(deliveries))
        return await super().extend(deliveries)


def read(delivery: Delivery, now: datetime) -> Letter:
    return letter_of(delivery.message, failure_of("E", "", now), transport="default", now=now)


async def test_what_was_refused_comes_again_when_its_lease_ends_and_is_kept_when_the_store_takes_it() -> None:
    clock, events, told = ManualClock(), Events(), list[Event]()
    events.subscribe(told.append)
    transport, store = Extended(clock=clock, lease=LEASE), MemoryStore()
    await transport.send([make_message(id=name, source="dead") for name in ("good", "bad", "fine")])
    picky = store.letters = Picky()
    collector = Collector(transport, "dead", read, store, events=events, clock=clock, lease=LEASE)

    def refused(times: int) -> Callable[[], bool]:
        return lambda: sum(isinstance(one, LetterRefused) and one.message == "bad" for one in told) == times

    running = asyncio.create_task(collector.run())
    await until(refused(1))
    assert await store.letters.count(Query()) == 2
    for number in (2, 3):
        await clock.advance(LEASE.total_seconds())
        await until(refused(number))
    assert transport.asked == [1, 1], "it is one, however often it comes"
    picky.mended = True
    await clock.advance(LEASE.total_seconds())
    await until(lambda: collector.collected == 3)
    collector.stop()
    assert await asyncio.wait_for(running, 30) == 3
    assert not sum(one.total for one in (await transport.depths()).values())


async def test_what_makes_its_reader_raise_is_a_letter_and_the_next_one_is_collected() -> None:
    clock, events = ManualClock(), Events()
    transport, store = MemoryTransport(clock=clock, lease=LEASE), MemoryStore()
    await transport.send([make_message(id=name, source="dead", body=b"\xff") for name in ("good", "bad", "fine")])

    def reading(delivery: Delivery, now: datetime) -> Letter:
        if delivery.message.id == "bad":
            raise RecursionError("too deep")
        return read(delivery, now)

    async def failing(letters: Sequence[Letter]) -> None:
        raise ZeroDivisionError

    collector = Collector(transport, "dead", reading, store, events=events, clock=clock, lease=LEASE, stored=failing)
    running = asyncio.create_task(collector.run())
    await until(lambda: collector.collected == 3)
    collector.stop()
    await running
    letters = {letter.message.id: letter for letter in (await store.letters.search(Query())).letters}
    assert set(letters) == {"good", "bad", "fine"}
    bad = letters["bad"]
    assert (bad.category, bad.reason, bad.message.body) == (Category.VALIDATION, Reason.UNDECODABLE, b"\xff")
    assert "to read why it died failed: RecursionError: too deep" in bad.last.message


async def test_what_we_wrote_is_told_by_the_keys_of_the_store_from_the_first_batch_on() -> None:
    clock, store = ManualClock(), MemoryStore()
    transport = MemoryTransport(clock=clock, lease=LEASE)
    forged = record_of(make_letter(), "dead")  # by somebody without a key, and so is it read by whoever knows none
    await load_keys(store, clock.now())
    genuine = record_of(make_letter(make_message(id="ours")), "dead")
    forget()  # the collector is another process
    for name, parcel in (("forged", forged), ("genuine", genuine)):
        headers = tuple((header, value or b"") for header, value in parcel.headers)
        await transport.send([make_message(id=name, source="dead", headers=headers)])

    def reading(delivery: Delivery, now: datetime) -> Letter:
        return letter_in(delivery.message.headers, delivery.message) or read(delivery, now)

    collector = Collector(transport, "dead", reading, store, events=Events(), clock=clock, lease=LEASE)
    running = asyncio.create_task(collector.run())
    await until(lambda: collector.collected == 2)
    collector.stop()
    await running
    found = (await store.letters.search(Query())).letters
    assert {(letter.message.source, letter.message.id) for letter in found} == {("dead", "forged"), ("orders", "ours")}
