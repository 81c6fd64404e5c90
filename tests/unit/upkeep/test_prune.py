"""What may be forgotten, and what is written down before it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.forensics.transfer import letters_of
from redrive.model import Letter, State
from redrive.telemetry.events import LettersPruned
from redrive.testing.builders import make_letter, make_message
from redrive.upkeep.prune import Retention, prune
from tests.unit.support import World

DAY = timedelta(days=1)


async def _bury(world: World, number: int = 1, **changes: Any) -> list[Letter]:
    letters = [make_letter(at=world.clock.now(), **changes) for _ in range(number)]
    await world.letters.letters.record(letters)
    return letters


async def _prune(world: World, **retention: Any) -> int:
    return await prune(world.store, world.events, world.clock, Retention(**retention))


async def _left(world: World) -> set[str]:
    return {one.id for one in (await world.letters.letters.search(Query(), limit=10_000)).letters}


async def test_by_default_nothing_is_ever_forgotten() -> None:
    world = World()
    await _bury(world, 3)
    await world.clock.advance(10 * 365 * 86400)
    assert await _prune(world) == 0
    assert world.seen(LettersPruned) == []


async def test_a_letter_past_its_policys_time_to_live_is_forgotten() -> None:
    world = World()
    now = world.clock.now()
    await _bury(world, expires_at=now + DAY)
    (longer,) = await _bury(world, expires_at=now + 2 * DAY)
    (forever,) = await _bury(world)
    await world.clock.advance(86400)
    assert await _prune(world) == 0
    await world.clock.advance(1)
    assert await _prune(world) == 1
    assert await _left(world) == {longer.id, forever.id}
    assert [(fact.count, fact.why) for fact in world.seen(LettersPruned)] == [(1, "their time to live ended")]


async def test_a_letter_past_the_retention_is_forgotten() -> None:
    world = World()
    await _bury(world, 2)
    await world.clock.advance(86400 / 2)
    (younger,) = await _bury(world)
    await world.clock.advance(86400 / 2 + 1)
    assert await _prune(world, ttl=DAY) == 2
    assert await _left(world) == {younger.id}


@pytest.mark.parametrize("state", [State.RETRYING, State.REPLAYING])
async def test_what_is_on_its_way_is_never_forgotten(state: State) -> None:
    world = World()
    (letter,) = await _bury(world, state=state, expires_at=world.clock.now())
    await world.clock.advance(10 * 86400)
    assert await _prune(world, ttl=DAY, max_letters=1) == 0
    await _bury(world, 3)
    assert await _prune(world, max_letters=1) == 3
    assert await _left(world) == {letter.id}


async def test_over_the_limit_those_that_need_nobody_go_first_and_the_oldest_of_them() -> None:
    world = World()
    groups: dict[State, list[Letter]] = {}
    for state in (State.PENDING, State.EXHAUSTED, State.ARCHIVED, State.RESOLVED):
        groups[state] = []
        for _ in range(2):
            groups[state] += await _bury(world, state=state)
            await world.clock.advance(1)
    order = [
        one.id for state in (State.RESOLVED, State.ARCHIVED, State.EXHAUSTED, State.PENDING) for one in groups[state]
    ]
    for most in range(7, 0, -1):
        assert await _prune(world, max_letters=most) == 1
        assert await _left(world) == set(order[8 - most :])


async def test_within_the_limit_nothing_is_forgotten() -> None:
    world = World()
    await _bury(world, 5)
    assert await _prune(world, max_letters=5) == 0


async def test_very_many_go_in_one_round() -> None:
    world = World()
    await _bury(world, 1300)
    assert await _prune(world, max_letters=100) == 1200
    assert [(fact.count, fact.why) for fact in world.seen(LettersPruned)] == [(1200, "there were more than 100")]


async def test_letters_are_written_to_the_export_before_they_are_deleted(tmp_path: Path) -> None:
    world, file = World(), tmp_path / "pruned.jsonl"
    letters = [make_letter(make_message(body=bytes(range(256)))) for _ in range(3)]
    await world.letters.letters.record(letters)
    await world.clock.advance(2 * 86400)
    assert await _prune(world, ttl=DAY, export=str(file)) == 3
    assert list(letters_of(file.read_bytes().splitlines())) == letters
    assert world.calls.names.index("letters.search") < world.calls.names.index("letters.prune")


async def test_what_cannot_be_exported_is_not_deleted(tmp_path: Path) -> None:
    world = World()
    letters = await _bury(world, 3)
    await world.clock.advance(2 * 86400)
    with pytest.raises(OSError, match="No such file"):
        await _prune(world, ttl=DAY, export=str(tmp_path / "nowhere" / "pruned.jsonl"))
    assert await _left(world) == {letter.id for letter in letters}


async def test_killed_between_export_and_deletion_it_is_in_both_and_never_in_neither(tmp_path: Path) -> None:
    world, file = World(), tmp_path / "pruned.jsonl"
    letters = await _bury(world, 3)
    await world.clock.advance(2 * 86400)
    world.calls.fail("letters.prune", StoreUnavailable("letters"))
    with pytest.raises(StoreUnavailable):
        await _prune(world, ttl=DAY, export=str(file))
    assert len(list(letters_of(file.read_bytes().splitlines()))) == 3
    assert await _left(world) == {letter.id for letter in letters}
    assert await _prune(world, ttl=DAY, export=str(file)) == 3


async def test_an_export_in_several_pages_has_every_letter_once(tmp_path: Path) -> None:
    world, file = World(), tmp_path / "pruned.jsonl"
    letters = await _bury(world, 1203)
    assert await _prune(world, max_letters=3, export=str(file)) == 1200
    exported = [letter.id for letter in letters_of(file.read_bytes().splitlines())]
    assert len(exported) == len(set(exported)) == 1200
    assert set(exported) | await _left(world) == {letter.id for letter in letters}


async def test_a_message_that_only_waits_for_its_retry_is_never_forgotten() -> None:
    """It may be parked here because its transport cannot delay it: that is no old letter, it is a live message."""
    world = World()
    soon = world.clock.now() + timedelta(days=60)
    await world.letters.letters.record([make_letter(make_message(id="waits"), next_retry_at=soon)])
    await world.clock.advance(timedelta(days=40).total_seconds())
    kept = Retention(ttl=timedelta(days=30), max_letters=0)
    assert await prune(world.store, world.events, world.clock, kept) == 0
