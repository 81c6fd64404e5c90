"""The next batch of a replay is claimed while the one before it is sent, and given back if it is not sent after all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from redrive.errors import StoreUnavailable
from redrive.flow.guard import Guard
from redrive.flow.replay import Replays, ReplayState
from redrive.forensics.query import Query
from redrive.model import Message, State
from redrive.stores.base import EntryStatus
from redrive.transports.base import SendResult, Transport, busy
from tests.unit.flow.campaigns import ALL, bury, replays_of, tally
from tests.unit.support import SOON, World


class Hooked:
    """A transport that does something before each send."""

    def __init__(self, transport: Transport, before: Callable[[int], Awaitable[Any]]) -> None:
        self._transport, self._before, self._sends = transport, before, 0

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        self._sends += 1
        answers = await self._before(self._sends)
        return answers or await self._transport.send(messages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def hooked(world: World, before: Callable[[int], Awaitable[Any]]) -> Replays:
    return replays_of(world, {"default": cast(Transport, Hooked(world.transport, before))})


async def claims(world: World, count: int) -> None:
    async with asyncio.timeout(SOON):
        while world.calls.count("letters.claim") < count:  # noqa: ASYNC110  # a turn of the loop, and no time
            await asyncio.sleep(0)


async def owned(world: World) -> int:
    return sum(letter.owner is not None for letter in (await world.store.letters.search(Query(), limit=2000)).letters)


async def test_the_next_batch_is_claimed_while_one_is_sent() -> None:
    world = World()
    await bury(world, 450)

    async def before(send: int) -> None:
        if send == 1:
            await claims(world, 2)

    replays = hooked(world, before)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    assert (await replays.run("r1", runner="a")).state is ReplayState.SENT
    assert await tally(world, "r1") == {EntryStatus.SENT: 450}


async def test_what_was_claimed_ahead_is_given_back_when_it_is_paused() -> None:
    world = World()
    await bury(world, 450)

    async def before(send: int) -> None:
        await claims(world, 2)
        await replays.pause("r1", actor="ann")

    replays = hooked(world, before)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    assert (await replays.run("r1", runner="a")).state is ReplayState.PAUSED
    assert await owned(world) == 0
    assert await tally(world, "r1") == {EntryStatus.SENT: 200, EntryStatus.SELECTED: 250}
    waiting = (await world.store.letters.search(Query(states=(State.PENDING,)), limit=500)).letters
    assert [letter.resends for letter in waiting] == [0] * 250


@pytest.mark.parametrize("changes", [{"rate": 100.0}, {"guard": Guard(canary=10, ramp=(50, 100))}])
async def test_nothing_is_claimed_ahead_of_a_rate_or_of_a_step_that_ends(changes: dict[str, Any]) -> None:
    world = World()
    await bury(world, 450)

    async def before(send: int) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert await owned(world) <= 100
        await replays.pause("r1", actor="ann")

    replays = hooked(world, before)
    await replays.start(ALL, actor="ann", id="r1", **changes)
    assert (await replays.run("r1", runner="a")).state is ReplayState.PAUSED


async def test_what_was_claimed_ahead_of_a_target_that_takes_nothing_waits_with_the_rest() -> None:
    world = World()
    await bury(world, 450)

    async def before(send: int) -> Any:
        await claims(world, 2)
        return [busy("it is full")] * 200

    replays = hooked(world, before)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    rested = await replays.run("r1", runner="a")
    assert rested.state is ReplayState.RUNNING
    assert rested.again_at is not None
    assert await tally(world, "r1") == {EntryStatus.SELECTED: 450}
    assert world.calls.count("transport.send") == 0
    await replays.cancel("r1", actor="ann")
    assert await owned(world) == 0


async def test_a_store_that_goes_away_at_a_claim_ahead_ends_the_run_when_what_is_under_way_is_written() -> None:
    world = World()
    await bury(world, 450)

    async def before(send: int) -> None:
        if send == 1:
            world.calls.fail("letters.claim", StoreUnavailable("memory", "away"))
            await claims(world, 2)

    replays = hooked(world, before)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    with pytest.raises(StoreUnavailable):
        await replays.run("r1", runner="a")
    queued = sum(depth.ready for depth in (await world.transport.depths()).values())
    assert 0 < (await tally(world, "r1"))[EntryStatus.SENT] == queued < 450
    assert (await replays.run("r1", runner="b")).state is ReplayState.SENT
    assert await tally(world, "r1") == {EntryStatus.SENT: 450}


async def test_a_batch_that_waited_long_for_the_one_before_it_is_claimed_anew() -> None:
    """Its claim might end before it is sent, and somebody else would send it, too."""
    world = World()
    await bury(world, 450)

    async def before(send: int) -> None:
        if send == 1:
            await claims(world, 2)
            await world.clock.advance(40)

    replays = hooked(world, before)
    await replays.start(ALL, actor="ann", id="r1")
    ended = await replays.run("r1", runner="a")
    assert ended.state is ReplayState.SENT
    claims_of = [
        (args[0].ids, kwargs["until"]) for name, args, kwargs in world.calls.arguments if name == "letters.claim"
    ]
    (ids, until), (again, later) = claims_of[1], claims_of[2]
    assert (set(again), later > until) == (set(ids), True)
    assert await tally(world, "r1") == {EntryStatus.SENT: 450}
