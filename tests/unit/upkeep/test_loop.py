"""Upkeep at work beside the workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Redrive
from redrive.config.settings import Retention, Settings
from redrive.config.settings import Upkeep as UpkeepSettings
from redrive.errors import StoreUnavailable, TransportUnavailable
from redrive.flow.breaker import BreakerRule
from redrive.flow.replay import ReplayState
from redrive.forensics.query import Query
from redrive.model import State
from redrive.telemetry.events import BackendDown, LettersPruned
from redrive.testing.builders import make_letter
from redrive.upkeep.loop import Upkeep
from tests.unit.support import SOON, Killed, World

SECOND = timedelta(seconds=1)


def _upkeep(world: World, **settings: Any) -> Upkeep:
    made = Settings(worker="w", upkeep=UpkeepSettings(interval=SECOND), **settings)
    return Upkeep(world.store, {"default": world.transport}, world.events, world.clock, made, BreakerRule())


@asynccontextmanager
async def _running(upkeep: Upkeep) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(upkeep.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, SOON)


async def test_letters_that_are_due_are_sent_back_as_time_goes_by() -> None:
    world = World()
    letter = make_letter(next_retry_at=world.clock.now() + timedelta(seconds=30))
    await world.letters.letters.record([letter])
    async with _running(_upkeep(world)):
        await world.clock.advance(29)
        assert (await world.letter_of(letter.message)).state is State.PENDING
        await world.clock.advance(2)
        assert (await world.letter_of(letter.message)).state is State.RETRYING


async def test_claims_of_a_dead_processor_are_rescued_and_sent() -> None:
    world = World()
    letter = make_letter(next_retry_at=world.clock.now())
    await world.letters.letters.record([letter])
    world.calls.fail("transport.send", Killed())
    with pytest.raises(Killed):
        await _upkeep(world).due.cycle()
    async with _running(_upkeep(world)):
        await world.clock.advance(70)
    now = await world.letter_of(letter.message)
    assert (now.state, now.owner) == (State.RETRYING, None)
    assert (await world.queue.depths())["orders"].ready == 1


async def test_a_replay_that_nobody_runs_is_run_on() -> None:
    world = World()
    await world.letters.letters.record([make_letter() for _ in range(3)])
    upkeep = _upkeep(world)
    replay = await upkeep.replays.start(Query(), actor="ann")
    async with _running(upkeep):
        await world.clock.advance(6)
    assert (await upkeep.replays.get(replay.id)).state is ReplayState.SENT
    assert (await world.queue.depths())["orders"].ready == 3


async def test_retention_is_applied() -> None:
    world = World()
    await world.letters.letters.record([make_letter() for _ in range(3)])
    async with _running(_upkeep(world, retention=Retention(max_letters=1))):
        await world.clock.advance(61)
    assert await world.letters.letters.count(Query()) == 1
    assert sum(fact.count for fact in world.seen(LettersPruned)) == 2


async def test_a_store_that_is_away_is_reported_and_upkeep_goes_on_when_it_is_back() -> None:
    world = World()
    letter = make_letter(next_retry_at=world.clock.now())
    await world.letters.letters.record([letter])
    down = StoreUnavailable("letters", "disk is full")
    for name in ("letters.tallies", "letters.search", "documents.list"):
        world.calls.break_down(name, down)
    async with _running(_upkeep(world)) as task:
        await world.clock.advance(30)
        assert not task.done()
        assert {fact.backend for fact in world.seen(BackendDown)} == {"letters"}
        for name in ("letters.tallies", "letters.search", "documents.list"):
            world.calls.mend(name)
        await world.clock.advance(2)
    assert (await world.letter_of(letter.message)).state is State.RETRYING


async def test_a_transport_that_is_away_stops_neither_rescue_nor_pruning() -> None:
    world = World()
    await world.letters.letters.record([make_letter(next_retry_at=world.clock.now()), make_letter()])
    world.calls.break_down("transport.send", TransportUnavailable("queue"))
    async with _running(_upkeep(world, retention=Retention(max_letters=1))) as task:
        await world.clock.advance(120)
        assert not task.done()
    assert await world.letters.letters.count(Query()) == 1


async def test_an_archive_that_cannot_be_written_does_not_end_automatic_retries(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    export = str(tmp_path / "nowhere" / "pruned.jsonl")
    await world.letters.letters.record([make_letter(expires_at=world.clock.now())])
    async with _running(_upkeep(world, retention=Retention(ttl=SECOND, export=export))) as task:
        await world.clock.advance(61)
        letter = make_letter(next_retry_at=world.clock.now(), at=world.clock.now())
        await world.letters.letters.record([letter])
        await world.clock.advance(2)
        assert not task.done()
        assert (await world.letter_of(letter.message)).state is State.RETRYING
    assert "prune" in caplog.text


async def test_upkeep_of_an_app_has_its_store_and_transports() -> None:
    async with Redrive(transport="memory://", store="memory://") as app:
        await app.store.letters.record([make_letter(next_retry_at=app.clock.now())])
        assert await Upkeep.of(app).due.cycle() == 1
        assert (await app.transport().depths())["orders"].ready == 1


async def test_a_replay_to_a_dead_broker_starves_neither_an_older_nor_a_newer_one() -> None:
    world, dead = World(), World()
    made = Settings(worker="w", upkeep=UpkeepSettings(interval=SECOND))
    transports = {"default": world.transport, "dead": dead.transport}
    upkeep = Upkeep(world.store, transports, world.events, world.clock, made, BreakerRule())
    dead.calls.break_down("transport.send", TransportUnavailable("dead", "connection refused"))
    replays = []
    for transport in ("default", "dead", "default"):
        letter = make_letter(transport=transport)
        await world.letters.letters.record([letter])
        replays.append(await upkeep.replays.start(Query(ids=(letter.id,)), actor="ann"))
        await world.clock.advance(1)
    async with _running(upkeep):
        await world.clock.advance(30)
    states = [(await upkeep.replays.get(replay.id)).state for replay in replays]
    assert states == [ReplayState.SENT, ReplayState.RUNNING, ReplayState.SENT]


async def test_a_replay_whose_broker_never_answers_starves_no_other() -> None:
    world, silent = World(), World()
    made = Settings(worker="w", upkeep=UpkeepSettings(interval=SECOND))

    class Silent:
        features = silent.queue.features

        async def send(self, messages: Any) -> None:
            await asyncio.Event().wait()

    transports: Any = {"default": world.transport, "silent": Silent()}
    upkeep = Upkeep(world.store, transports, world.events, world.clock, made, BreakerRule())
    replays = []
    for transport in ("default", "silent", "default"):
        letter = make_letter(transport=transport)
        await world.letters.letters.record([letter])
        replays.append(await upkeep.replays.start(Query(ids=(letter.id,)), actor="ann"))
        await world.clock.advance(1)
    async with _running(upkeep):
        await world.clock.advance(30)
    states = [(await upkeep.replays.get(replay.id)).state for replay in replays]
    assert states == [ReplayState.SENT, ReplayState.RUNNING, ReplayState.SENT]
