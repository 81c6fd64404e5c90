"""Letters of one key go back in the order they died, each when the one before is resolved; children after parents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.flow.guard import Guard
from redrive.flow.order import Fate, Order, Place, fate_of, line_of
from redrive.flow.replay import ReplayState
from redrive.flow.replay_document import PausedBy
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.model import Letter, Reason, State
from redrive.stores.base import EntryStatus
from redrive.testing.builders import make_letter, make_message
from redrive.transports.base import busy, refused
from tests.unit.flow.campaigns import ALL, bury, ids, notes, passing, replays_of, run, tally, worker
from tests.unit.support import World


def _by_key(letters: list[Letter], done: list[str]) -> dict[bytes | None, list[str]]:
    keys = {letter.message.id: letter.message.key for letter in letters}
    found: dict[bytes | None, list[str]] = {}
    for id in dict.fromkeys(done):
        found.setdefault(keys[id], []).append(id)
    return found


async def test_letters_of_one_key_go_one_after_the_other_in_the_order_they_died() -> None:
    world = World()
    letters = await bury(world, 30, keys=3)
    replays, done = replays_of(world), list[str]()
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    async with worker(world, lambda message: False, done):
        ended = await run(world, replays, "r1")
    assert ended.state is ReplayState.SENT
    assert _by_key(letters, done) == _by_key(letters, ids(letters))
    sends = [args[0] for name, args, _ in world.calls.arguments if name == "transport.send"]
    assert all(len({message.key for message in messages}) == len(messages) for messages in sends)


async def test_the_next_waits_until_the_one_before_is_resolved() -> None:
    world = World()
    await bury(world, 4, keys=2)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    await passing(world, asyncio.create_task(replays.run("r1", runner="a")))
    waiting = await replays.get("r1")
    assert await tally(world, "r1") == {EntryStatus.SENT: 2, EntryStatus.SELECTED: 2}
    assert waiting.state is ReplayState.RUNNING
    assert "to keep the order of the 2 letters left" in waiting.awaits


async def test_what_is_behind_one_that_dies_again_is_skipped_and_other_keys_go_on() -> None:
    world = World()
    letters = await bury(world, 12, keys=2)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    async with worker(world, lambda message: message.id == letters[2].message.id):
        ended = await run(world, replays, "r1")
    assert ended.state is ReplayState.SENT
    late = await notes(world, "r1")
    assert set(late) == {letter.id for letter in letters[4::2]}
    assert all(letters[2].id in note and "died again" in note for note in late.values())
    assert await tally(world, "r1") == {EntryStatus.RESOLVED: 7, EntryStatus.FAILED: 1, EntryStatus.SKIPPED: 4}
    for letter in letters[4::2]:
        left = await world.letter_of(letter.message)
        assert (left.state, left.owner, left.resends) == (State.PENDING, None, 0)


async def test_letters_without_a_key_wait_for_nothing_and_ask_nothing_more() -> None:
    world = World()
    await bury(world, 300)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    await load_keys(world.store, world.clock.now())
    world.calls.names.clear()
    ended = await replays.run("r1", runner="a")
    assert (ended.state, ended.keyed) == (ReplayState.SENT, False)
    assert world.calls.count("letters.search") == 0
    assert await tally(world, "r1") == {EntryStatus.SENT: 300}


async def test_one_key_of_two_sources_is_two_lines() -> None:
    one, other = make_message(key=b"k"), make_message(key=b"k", source="reports")
    lines = {line_of(make_letter(one)), line_of(make_letter(other)), line_of(make_letter(one, transport="kafka"))}
    assert len(lines) == 3
    assert line_of(make_letter(make_message())) is None


async def test_a_letter_goes_after_the_letters_it_depends_on_wherever_they_stand_in_the_selection() -> None:
    world = World()
    child = make_letter(make_message(id="child"), at=world.clock.now(), depends_on=("parent",))
    await world.letters.letters.record([child])
    (parent,) = await bury(world, 1)
    renamed = make_letter(make_message(id="parent"), at=parent.created_at)
    await world.letters.letters.prune(Query(ids=(parent.id,)), limit=1)
    await world.letters.letters.record([renamed])
    replays, done = replays_of(world), list[str]()
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    async with worker(world, lambda message: False, done):
        await run(world, replays, "r1")
        await _settled(world, 2)
    assert done == ["parent", "child"]


async def _settled(world: World, resolved: int) -> None:
    async with asyncio.timeout(10):
        while (await tally(world, "r1")).get(EntryStatus.RESOLVED, 0) < resolved:
            await world.clock.advance(0.01)


async def test_a_child_whose_parent_dies_again_is_skipped() -> None:
    world = World()
    (parent,) = await bury(world, 1)
    child = make_letter(make_message(), at=world.clock.now(), depends_on=(parent.message.id,))
    await world.letters.letters.record([child])
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    await world.clock.advance(1)
    async with worker(world, lambda message: True):
        await run(world, replays, "r1")
    assert (await notes(world, "r1"))[child.id].startswith(f"it depends on {parent.id}, which died again")


async def test_a_child_whose_parent_is_no_part_of_the_replay_is_skipped() -> None:
    world = World()
    (parent,) = await bury(world, 1)
    child = make_letter(make_message(), at=world.clock.now(), depends_on=(parent.message.id,))
    await world.letters.letters.record([child])
    replays = replays_of(world)
    await replays.start(Query(ids=(child.id,)), actor="ann", id="r1", ordered=True)
    assert (await run(world, replays, "r1")).state is ReplayState.SENT
    assert "no part of this replay" in (await notes(world, "r1"))[child.id]


async def test_letters_that_depend_on_each_other_are_skipped_and_not_waited_for_for_ever() -> None:
    world = World()
    one = make_letter(make_message(id="one"), at=world.clock.now(), depends_on=("two",))
    two = make_letter(make_message(id="two"), at=world.clock.now(), depends_on=("one",))
    await world.letters.letters.record([one, two])
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    assert (await run(world, replays, "r1")).state is ReplayState.SENT
    assert (await notes(world, "r1")).keys() == {one.id, two.id}


async def test_what_is_behind_a_letter_that_is_archived_meanwhile_goes_on() -> None:
    world = World()
    letters = await bury(world, 3, keys=1)
    replays, done = replays_of(world), list[str]()
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    await world.letters.letters.move([letters[0].id], expect=[State.PENDING], to=State.ARCHIVED, now=world.clock.now())
    async with worker(world, lambda message: False, done):
        await run(world, replays, "r1")
        await _settled(world, 2)
    assert done == ids(letters[1:])
    assert (await notes(world, "r1"))[letters[0].id] == "it was archived after it was selected"


async def test_what_is_behind_a_letter_that_its_broker_refuses_is_skipped_too() -> None:
    world = World()
    letters = await bury(world, 3, keys=1)
    world.calls.answer("transport.send", [refused("too large")])
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    assert (await run(world, replays, "r1")).state is ReplayState.SENT
    assert (await notes(world, "r1")).keys() == {letter.id for letter in letters}
    states = {letter.state for letter in (await world.letters.letters.search(ALL)).letters}
    assert states == {State.PENDING}


async def test_what_is_behind_a_letter_that_is_not_taken_now_does_not_overtake_it() -> None:
    world = World()
    letters = await bury(world, 3, keys=1)
    world.calls.answer("transport.send", [busy("full")], [busy("full")])
    replays, done = replays_of(world), list[str]()
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    async with worker(world, lambda message: False, done):
        await run(world, replays, "r1")
        await _settled(world, 3)
    assert done == ids(letters)


async def test_an_ordered_replay_whose_outcomes_never_come_pauses() -> None:
    world = World()
    await bury(world, 4, keys=1)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", ordered=True)
    paused = (await run(world, replays, "r1")).paused
    assert paused is not None
    assert paused.by is PausedBy.DEADLINE
    states = [letter.state for letter in (await world.letters.letters.search(ALL)).letters]
    assert sorted(states) == [State.PENDING] * 3 + [State.REPLAYING]


async def test_another_run_knows_which_keys_died_and_which_are_on_their_way() -> None:
    world = World()
    letters = await bury(world, 9, keys=3)
    replays, done = replays_of(world), list[str]()
    await replays.start(ALL, actor="ann", id="r1", ordered=True, guard=Guard(canary=3, share=1))
    await passing(world, asyncio.create_task(replays.run("r1", runner="a")))
    async with worker(world, lambda message: message.id == letters[0].message.id, done):
        await world.clock.advance(1)
        ended = await run(world, replays_of(world), "r1", runner="b")
        await _settled(world, 6)
    assert ended.state is ReplayState.SENT
    assert (await notes(world, "r1")).keys() == {letters[3].id, letters[6].id}
    assert _by_key(letters, done)[b"key-1"] == ids(letters[1::3])


@pytest.mark.parametrize(
    ("changes", "fate"),
    [
        ({"state": State.RESOLVED}, Fate.DONE),
        ({"state": State.ARCHIVED}, Fate.DONE),
        ({"state": State.SENT}, Fate.DONE),
        ({"state": State.REPLAYING}, Fate.OPEN),
        ({"state": State.RETRYING}, Fate.OPEN),
        ({"state": State.PENDING, "reason": Reason.PARKED}, Fate.OPEN),
        ({"state": State.EXHAUSTED}, Fate.DIED),
        ({"state": State.PENDING}, Fate.DIED),
    ],
)
def test_what_a_letter_on_its_way_has_come_to(changes: dict[str, Any], fate: Fate) -> None:
    assert fate_of(replace(make_letter(), **changes)) is fate
    assert fate_of(None) is Fate.DONE


def test_there_is_a_bound_to_what_is_held() -> None:
    order, held = Order(), 0
    while order.has_capacity:
        order.place(make_letter(make_message(key=b"k")))
        held += 1
    assert held == 10_001
    assert order.place(make_letter(make_message())) is Place.GO
