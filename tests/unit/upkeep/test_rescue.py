"""What a dead processor left behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive.flow.replay import Replays, ReplayState
from redrive.flow.replay_document import KIND, OPEN_KIND
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.telemetry.events import LettersMoved
from redrive.testing.builders import make_letter
from redrive.upkeep.rescue import abandoned_replays, rescue_claims, rescue_stopped
from tests.unit.support import Killed, World

LEASE = timedelta(seconds=60)


async def _claim(world: World, to: State, owner: str = "dead") -> Letter:
    letter = make_letter(next_retry_at=world.clock.now())
    await world.letters.letters.record([letter])
    now = world.clock.now()
    await world.letters.letters.claim(Query(ids=(letter.id,)), to=to, owner=owner, now=now, until=now + LEASE, limit=1)
    return letter


async def _rescue(world: World) -> int:
    return await rescue_claims(world.store, world.events, world.clock)


async def test_a_claim_whose_lease_ended_waits_again_as_if_it_had_not_been_claimed() -> None:
    world = World()
    letter = await _claim(world, State.RETRYING)
    await world.clock.advance(61)
    assert await _rescue(world) == 1
    now = await world.letter_of(letter.message)
    assert (now.state, now.owner, now.retries, now.resends) == (State.PENDING, None, 0, 0)
    assert now.next_retry_at == letter.next_retry_at
    assert [(fact.to, fact.count, fact.actor) for fact in world.seen(LettersMoved)] == [(State.PENDING, 1, "rescue")]


async def test_a_claim_that_is_alive_is_left_alone() -> None:
    world = World()
    await _claim(world, State.RETRYING)
    await world.clock.advance(60)
    assert await _rescue(world) == 0
    assert world.seen(LettersMoved) == []


async def test_what_was_sent_is_on_its_way_and_is_left_alone() -> None:
    world = World()
    letter = await _claim(world, State.RETRYING)
    await world.letters.letters.move(
        [letter.id], expect=[State.RETRYING], to=State.RETRYING, owner="dead", now=world.clock.now()
    )
    await world.clock.advance(10_000)
    assert await _rescue(world) == 0


async def test_a_replays_claims_stay_because_the_replay_is_run_on() -> None:
    world = World()
    letter = await _claim(world, State.REPLAYING, "replay:r1")
    await world.clock.advance(61)
    assert await _rescue(world) == 0
    assert (await world.letter_of(letter.message)).state is State.REPLAYING


async def test_very_many_are_all_rescued() -> None:
    world = World()
    for _ in range(1203):
        await _claim(world, State.RETRYING)
    await world.clock.advance(61)
    assert await _rescue(world) == 1203
    assert await world.letters.letters.count(Query(states=(State.RETRYING,))) == 0


async def test_one_that_is_taken_by_another_meanwhile_is_not_taken_back() -> None:
    world = World()
    letter = await _claim(world, State.RETRYING)
    await world.clock.advance(61)
    search = world.letters.letters.search

    async def search_and_lose(*args: Any, **kwargs: Any) -> Any:
        page = await search(*args, **kwargs)
        await world.letters.letters.move([letter.id], expect=[State.RETRYING], to=State.RESOLVED, now=world.clock.now())
        return page

    world.letters.letters.search = search_and_lose  # type: ignore[method-assign]
    assert await _rescue(world) == 0
    assert (await world.letter_of(letter.message)).state is State.RESOLVED


async def test_one_that_another_rescued_and_claimed_meanwhile_stays_with_its_new_owner() -> None:
    world = World()
    letter = await _claim(world, State.RETRYING)
    await world.clock.advance(61)
    search, letters = world.letters.letters.search, world.letters.letters

    async def search_and_lose(*args: Any, **kwargs: Any) -> Any:
        page = await search(*args, **kwargs)
        now = world.clock.now()
        await letters.move([letter.id], expect=[State.RETRYING], to=State.PENDING, now=now)
        await letters.claim(
            Query(ids=(letter.id,)), to=State.RETRYING, owner="alive", now=now, until=now + LEASE, limit=1
        )
        return page

    letters.search = search_and_lose  # type: ignore[method-assign]
    assert await _rescue(world) == 0
    now = await world.letter_of(letter.message)
    assert (now.state, now.owner) == (State.RETRYING, "alive")


async def test_a_replay_is_abandoned_when_its_runner_is_gone() -> None:
    world = World()
    await world.letters.letters.record([make_letter()])
    replays = Replays(world.store, {"default": world.transport}, world.events, world.clock)
    replay = await replays.start(Query(), actor="ann")
    assert await abandoned_replays(replays, world.clock) == [replay.id]
    world.calls.fail("transport.send", Killed())
    with pytest.raises(Killed):
        await replays.run(replay.id, runner="a")
    assert await abandoned_replays(replays, world.clock) == []
    assert await abandoned_replays(replays, world.clock, owner="b") == []
    assert await abandoned_replays(replays, world.clock, owner="a") == [replay.id], "who ran it need not wait"
    await world.clock.advance(61)
    assert await abandoned_replays(replays, world.clock) == [replay.id]
    assert (await replays.run(replay.id, runner="b")).state is ReplayState.SENT
    assert await abandoned_replays(replays, world.clock) == []


async def test_a_replay_that_was_never_frozen_is_nobodys() -> None:
    world = World()
    await world.letters.letters.record([make_letter()])
    replays = Replays(world.store, {"default": world.transport}, world.events, world.clock)
    world.calls.fail("ledger.freeze", Killed())
    with pytest.raises(Killed):
        await replays.start(Query(), actor="ann")
    await world.clock.advance(1000)
    assert await abandoned_replays(replays, world.clock) == []


async def test_what_a_cancelled_replay_left_claimed_is_let_go_even_if_who_cancelled_it_died() -> None:
    world = World()
    letter = make_letter()
    await world.letters.letters.record([letter])
    replays = Replays(world.store, {"default": world.transport}, world.events, world.clock)
    replay = await replays.start(Query(), actor="ann")
    world.calls.fail("transport.send", Killed())
    with pytest.raises(Killed):
        await replays.run(replay.id, runner="a")
    world.calls.fail("letters.search", Killed())
    with pytest.raises(Killed):
        await replays.cancel(replay.id, actor="bob")
    assert (await world.letter_of(letter.message)).state is State.REPLAYING
    await world.clock.advance(61)
    await rescue_stopped(world.store, replays, world.clock)
    now = await world.letter_of(letter.message)
    assert (now.state, now.owner, now.resends) == (State.PENDING, None, 0)


async def test_what_a_paused_replay_left_claimed_is_let_go_when_its_runner_died_and_not_before() -> None:
    world = World()
    letter = make_letter()
    await world.letters.letters.record([letter])
    replays = Replays(world.store, {"default": world.transport}, world.events, world.clock)
    replay = await replays.start(Query(), actor="ann")
    world.calls.fail("transport.send", Killed())
    with pytest.raises(Killed):
        await replays.run(replay.id, runner="a")
    await replays.pause(replay.id, actor="bob")
    await rescue_stopped(world.store, replays, world.clock)
    await replays.give_back(replay.id, actor="b")
    assert (await world.letter_of(letter.message)).state is State.REPLAYING, "its runner may live, and give it back"
    await world.clock.advance(61)
    await rescue_stopped(world.store, replays, world.clock)
    now = await world.letter_of(letter.message)
    assert (now.state, now.owner, now.resends) == (State.PENDING, None, 0)
    paused = await replays.get(replay.id)
    assert (paused.state, paused.runner) == (ReplayState.PAUSED, None)
    await replays.resume(replay.id, actor="bob")
    assert (await replays.run(replay.id, runner="b")).state is ReplayState.SENT


async def test_an_open_replay_is_found_behind_any_number_of_later_ones() -> None:
    world = World()
    replays = Replays(world.store, {"default": world.transport}, world.events, world.clock)
    await world.letters.letters.record([make_letter()])
    await replays.start(Query(), actor="ann", id="0-first")
    for number in range(1001):
        await world.store.documents.put(KIND, f"z{number}", await _ended(world, "0-first"))
    assert await abandoned_replays(replays, world.clock) == ["0-first"]
    await replays.run("0-first", runner="a")
    assert await replays.open() == []
    assert await world.store.documents.list(OPEN_KIND) == []


async def _ended(world: World, id: str) -> dict[str, Any]:
    document = await world.store.documents.get(KIND, id)
    assert document is not None
    return {**document.body, "id": "later", "state": "sent"}
