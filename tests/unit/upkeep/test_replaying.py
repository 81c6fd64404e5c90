"""Two servers whose clocks are apart do not run one replay twice."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from redrive.flow.replay import Replays, ReplayState
from redrive.forensics.query import Query
from redrive.testing.builders import make_letter
from redrive.testing.clock import ManualClock
from redrive.upkeep.replaying import Replaying
from tests.unit.support import World


class Ahead:
    """The clock of a server that is ahead of the others."""

    def __init__(self, clock: ManualClock, by: timedelta) -> None:
        self._clock = clock
        self._by = by

    def now(self) -> datetime:
        return self._clock.now() + self._by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


async def test_a_server_whose_clock_is_two_minutes_ahead_takes_over_only_what_nobody_renews() -> None:
    world = World()
    await world.letters.letters.record([make_letter() for _ in range(200)])
    replays = Replays(world.store, {"default": world.transport}, world.events, world.clock)
    await replays.start(Query(), actor="ann", id="r1", rate=1)
    run = asyncio.create_task(replays.run("r1", runner="alive"))
    ahead: Any = Ahead(world.clock, timedelta(minutes=2))
    other = Replaying(
        Replays(world.store, {"default": world.transport}, world.events, ahead), world.events, ahead, owner="b"
    )
    for _ in range(20):
        await world.clock.advance(5)
        await other.begin()
        await world.clock.advance(0)
        assert (await replays.get("r1")).runner == "alive"
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    await other.begin()
    for _ in range(100):
        await world.clock.advance(5)
    assert (await replays.get("r1")).state is ReplayState.SENT, "what was let go is run on at once"
    await other.aclose()


async def test_a_dead_server_is_followed_by_one_that_has_seen_nothing_of_it_for_a_minute() -> None:
    world = World()
    await world.letters.letters.record([make_letter()])
    replays = Replays(world.store, {"default": world.transport}, world.events, world.clock)
    replay = await replays.start(Query(), actor="ann", id="r1")
    held = {"runner": "dead", "runner_until": (world.clock.now() - timedelta(seconds=5)).isoformat()}
    document = await world.store.documents.get("replay", replay.id)
    assert document is not None
    await world.store.documents.put("replay", replay.id, {**document.body, **held})
    other = Replaying(replays, world.events, world.clock, owner="b")
    await other.begin()
    await world.clock.advance(55)
    await other.begin()
    await world.clock.advance(1)
    assert (await replays.get("r1")).state is ReplayState.RUNNING
    await world.clock.advance(5)
    await other.begin()
    await world.clock.advance(1)
    assert (await replays.get("r1")).state is ReplayState.SENT
    await other.aclose()
