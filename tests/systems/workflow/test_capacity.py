"""How full a queue is, while tasks are on their way into its store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from redrive.model import Letter, State, letter_id
from redrive.stores.base import Letters, Store, Tally
from redrive.stores.memory import MemoryStore
from redrive.systems.workflow import QueueFull
from redrive.systems.workflow.capacity import Capacity
from redrive.systems.workflow.task import SOURCE
from redrive.telemetry.events import Events
from redrive.testing.clock import ManualClock
from redrive.testing.stores import corpus


class SlowToTell:
    """Counts at once, and tells when it is let."""

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self.counted = asyncio.Event()
        self.let = asyncio.Event()
        self.let.set()

    async def tallies(self, query: object = None) -> Sequence[Tally]:
        tallies = await self._letters.tallies()
        self.counted.set()
        await self.let.wait()
        return tallies


class SlowStore:
    def __init__(self) -> None:
        self.kept = MemoryStore()
        self.letters = SlowToTell(self.kept.letters)

    async def record(self, name: str) -> None:
        await self.kept.letters.record([task(name)])


def task(name: str) -> Letter:
    letter = corpus(1)[0]
    message = replace(letter.message, id=name, source=SOURCE)
    return replace(letter, id=letter_id(SOURCE, name), message=message, state=State.PENDING)


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


def capacity(store: SlowStore, max_size: int) -> Capacity:
    return Capacity(cast(Store, store), max_size, ManualClock(), Events())


async def test_what_the_store_has_before_it_answers_is_not_counted_twice(store: SlowStore) -> None:
    room = capacity(store, 2)

    async def second() -> None:
        async with room.for_one("b"):
            await store.record("b")

    async with room.for_one("a"):
        await store.record("a")
        room.forget()
        waiting = asyncio.create_task(second())
        await store.letters.counted.wait()
    await waiting
    with pytest.raises(QueueFull):
        await second()


async def test_what_arrives_while_the_store_counts_is_not_forgotten(store: SlowStore) -> None:
    room = capacity(store, 1)
    await room.ask()
    store.letters.counted.clear()
    store.letters.let.clear()
    asking = asyncio.create_task(room.ask())
    await store.letters.counted.wait()
    async with room.for_one("a"):
        await store.record("a")
    store.letters.let.set()
    await asking
    with pytest.raises(QueueFull):
        async with room.for_one("b"):
            pass


async def test_one_that_fails_on_its_way_makes_room_for_one_that_waits(store: SlowStore) -> None:
    room = capacity(store, 1)
    begun, fail = asyncio.Event(), asyncio.Event()

    async def failing() -> None:
        async with room.for_one("a"):
            begun.set()
            await fail.wait()
            raise OSError("disk full")

    async def waiting() -> None:
        async with room.for_one("b"):
            await store.record("b")

    first = asyncio.create_task(failing())
    await begun.wait()
    second = asyncio.create_task(waiting())
    await asyncio.sleep(0)
    assert not second.done()
    fail.set()
    with pytest.raises(OSError, match="disk full"):
        await first
    await second
