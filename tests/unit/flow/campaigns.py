"""What tests of guarded and ordered replays share: letters, a handler at which some die, and a clock that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from redrive.flow.receive import Consumer
from redrive.flow.replay import Replay, Replays, ReplayState
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, Message
from redrive.policy import Policy
from redrive.stores.base import EntryStatus
from redrive.testing.builders import make_letter, make_message
from redrive.transports.base import Transport
from tests.unit.support import SOON, World, running

ALL = Query()


def replays_of(world: World, transports: Mapping[str, Transport] | None = None) -> Replays:
    return Replays(world.store, transports or {"default": world.transport}, world.events, world.clock)


async def bury(world: World, count: int, *, keys: int = 0, **changes: Any) -> list[Letter]:
    """Letters that died one after the other; the first has the first key, the second the second, and so round."""
    letters = []
    for number in range(count):
        key = b"key-%d" % (number % keys) if keys else None
        await world.clock.advance(0.001)
        letters.append(make_letter(make_message(key=key), at=world.clock.now(), **changes))
    await world.letters.letters.record(letters)
    return letters


@asynccontextmanager
async def worker(world: World, dies: Callable[[Message], bool], done: list[str] | None = None) -> AsyncIterator[None]:
    """A worker at whose handler those die; `done` hears of each message that came, in order."""

    async def handler(body: Any, message: Any) -> None:
        if done is not None:
            done.append(message.id)
        if dies(message):
            raise RuntimeError("it did not work")

    async with running(Consumer(world.context(handler, Policy(attempts=1)))):
        yield


async def run(world: World, replays: Replays, id: str, *, runner: str = "a", times: int = 400) -> Replay:
    """Run it on, as upkeep does, while time passes, until it ends or is paused."""
    for _ in range(times):
        task = asyncio.create_task(replays.run(id, runner=runner))
        await passing(world, task)
        replay = task.result()
        if replay.state is not ReplayState.RUNNING:
            return replay
        await world.clock.advance(5)
    raise AssertionError(f"it neither ends nor pauses: {replay}")


async def passing(world: World, task: asyncio.Task[Any]) -> None:
    """Let time pass until that task is at its end."""
    async with asyncio.timeout(SOON):
        while not task.done():
            await world.clock.advance(0.05)


async def tally(world: World, id: str) -> dict[EntryStatus, int]:
    return {status: count for status, count in (await world.letters.ledger.tally(id)).items() if count}


async def notes(world: World, id: str) -> dict[LetterId, str]:
    entries, _ = await world.letters.ledger.entries(id, status=EntryStatus.SKIPPED, limit=10_000)
    return {entry.letter: entry.note for entry in entries}


def ids(letters: Collection[Letter]) -> list[str]:
    return [letter.message.id for letter in letters]
