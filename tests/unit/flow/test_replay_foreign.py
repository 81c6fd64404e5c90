"""Letters of consumers that are not ours: they are sent, and nobody tells us more."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.flow.receive import Consumer
from redrive.flow.replay import Replay, Replays, ReplayState
from redrive.forensics.query import Query
from redrive.model import Done, Letter, State
from redrive.stores.base import EntryStatus
from redrive.testing.builders import make_letter, make_message
from redrive.testing.waiting import until
from redrive.transports.base import Settlement
from tests.unit.support import Killed, World, running

ALL = Query()


def _replays(world: World) -> Replays:
    return Replays(world.store, {"default": world.transport}, world.events, world.clock)


async def _bury(world: World, number: int, **changes: Any) -> list[Letter]:
    letters = [make_letter(make_message(), at=world.clock.now(), **changes) for _ in range(number)]
    await world.letters.letters.record(letters)
    return letters


async def _replay(world: World, query: Query = ALL) -> Replay:
    replays = _replays(world)
    return await replays.run((await replays.start(query, actor="ann")).id, runner="a")


async def _states(world: World) -> list[State]:
    return [letter.state for letter in (await world.letters.letters.search(ALL, limit=1000)).letters]


async def _drain(world: World) -> list[str]:
    """The ids of what is queued, which its consumer handles without a word to us."""
    if not sum(depth.ready for depth in (await world.queue.depths()).values()):
        return []
    deliveries = await world.queue.receive("orders", 1000)
    await world.queue.settle([Settlement(delivery, Done()) for delivery in deliveries])
    return sorted(delivery.message.id for delivery in deliveries)


async def test_they_end_as_sent_and_ours_are_replaying_beside_them() -> None:
    world = World()
    await _bury(world, 2, foreign=True)
    (ours,) = await _bury(world, 1)
    ended = await _replay(world)
    assert (ended.state, ended.untold) == (ReplayState.SENT, 2)
    assert sorted(await _states(world)) == [State.REPLAYING, State.SENT, State.SENT]
    assert (await world.letter_of(ours.message)).state is State.REPLAYING
    assert await world.letters.ledger.tally(ended.id) == {EntryStatus.SENT: 3}


async def test_a_replay_of_everything_does_not_send_them_twice() -> None:
    world = World()
    letters = await _bury(world, 2, foreign=True)
    await _replay(world)
    assert len(await _drain(world)) == 2
    assert (await _replay(world)).total == 0
    assert await _drain(world) == []
    assert (await _replay(world, Query(ids=(letters[0].id,)))).total == 1
    assert (await _replay(world, Query(states=(State.SENT,)))).total == 2
    assert len(await _drain(world)) == 2, "an id that is queued is one message here"
    assert (await world.letter_of(letters[0].message)).resends == 3


@pytest.mark.parametrize("step", ["ledger.mark", "letters.move"])
async def test_a_run_that_dies_after_it_sent_them_sends_none_twice(step: str) -> None:
    world = World()
    await _bury(world, 3, foreign=True)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    world.calls.fail(step, Killed())
    with pytest.raises(Killed):
        await replays.run(replay.id, runner="a")
    handled = await _drain(world) if step == "ledger.mark" else []
    await world.clock.advance(120)
    ended = await replays.run(replay.id, runner="b")
    assert (ended.state, ended.untold) == (ReplayState.SENT, 3)
    assert set(await _states(world)) == {State.SENT}
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.SENT: 3}
    assert len([*handled, *await _drain(world)]) == 3


async def test_one_that_our_own_worker_handles_after_all_is_resolved() -> None:
    world = World()
    (letter,) = await _bury(world, 1, foreign=True)
    ended = await _replay(world)

    async def is_resolved() -> bool:
        return (await world.letter_of(letter.message)).state is State.RESOLVED

    async def succeeds(body: Any) -> None:
        pass

    async with running(Consumer(world.context(succeeds))):
        await until(is_resolved)
    assert await world.letters.ledger.tally(ended.id) == {EntryStatus.RESOLVED: 1}
