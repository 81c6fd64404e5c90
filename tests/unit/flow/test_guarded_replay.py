"""A replay feels its way: a few first, then more, and not a step further while too many die again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from redrive.errors import UsageError
from redrive.flow.guard import Guard
from redrive.flow.replay import Replay, Replays, ReplayState
from redrive.flow.replay_document import KIND, NewPace, PausedBy
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Edit, Letter, Revision, State
from redrive.stores.base import EntryStatus, Store
from redrive.telemetry.events import ReplayMoved
from redrive.testing.builders import make_failure, make_letter
from redrive.transports.base import Transport
from tests.unit.flow.campaigns import ALL, bury, passing, replays_of, run, tally, worker
from tests.unit.support import Calls, Killed, Watched, World

CAREFUL = Guard(canary=5, ramp=(20, 100))


async def test_a_replay_whose_bug_is_still_there_stops_at_the_canary_and_says_so() -> None:
    world = World()
    await bury(world, 300)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard_many=True)
    await world.clock.advance(1)
    async with worker(world, lambda message: True):
        paused = await run(world, replays, "r1")
    assert paused.state is ReplayState.PAUSED
    assert paused.paused is not None
    assert paused.paused.by is PausedBy.GUARD
    assert "died again in the canary" in paused.paused.why
    assert paused.runner is None
    found = await tally(world, "r1")
    assert found[EntryStatus.SELECTED] == 295
    assert found.get(EntryStatus.FAILED, 0) + found.get(EntryStatus.SENT, 0) == 5
    assert [fact.state for fact in world.seen(ReplayMoved)] == ["running", "paused"]
    assert world.seen(ReplayMoved)[-1].why == paused.paused.why


async def test_a_pause_shows_what_letters_died_of_before_beside_what_they_die_of_now() -> None:
    world = World()
    before = make_failure(type="KeyError", message="region", at=world.clock.now())
    await world.letters.letters.record([make_letter(None, before) for _ in range(20)])
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    await world.clock.advance(1)
    async with worker(world, lambda message: True):
        paused = (await run(world, replays, "r1")).paused
    assert paused is not None
    [case] = paused.compared
    assert (case.before, case.now) == ("KeyError: region", "RuntimeError: it did not work")
    assert (case.before_group, case.is_same) == (fingerprint(before), False)
    assert paused.why.endswith("it fails elsewhere now")


async def test_letters_that_die_of_the_same_cause_as_before_say_that_the_bug_is_still_there() -> None:
    world = World()
    messages = [letter.message for letter in await bury(world, 10)]
    await world.letters.letters.prune(ALL, limit=100)
    await world.queue.send(messages)
    async with worker(world, lambda message: True):
        await _until_letters(world, 10)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    await world.clock.advance(1)
    async with worker(world, lambda message: True):
        paused = (await run(world, replays, "r1")).paused
    assert paused is not None
    assert paused.compared[0].is_same
    assert paused.why.endswith("the bug is still there")


async def _until_letters(world: World, count: int) -> None:
    async with asyncio.timeout(10):
        while await world.letters.letters.count(ALL) < count:
            await world.clock.advance(0.01)


async def test_a_replay_that_goes_well_goes_step_by_step_to_its_end() -> None:
    world = World()
    await bury(world, 200)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    async with worker(world, lambda message: False):
        ended = await run(world, replays, "r1")
        await _settled(world, "r1")
    assert (ended.state, ended.step) == (ReplayState.SENT, 2)
    assert await tally(world, "r1") == {EntryStatus.RESOLVED: 200}
    sends = [len(args[0]) for name, args, _ in world.calls.arguments if name == "transport.send"]
    assert sends[:2] == [5, 35]
    assert sum(sends) == 200


async def _settled(world: World, id: str) -> None:
    async with asyncio.timeout(10):
        while EntryStatus.SENT in await tally(world, id):
            await world.clock.advance(0.01)


async def test_no_step_begins_before_every_outcome_of_the_one_before_is_known() -> None:
    world = World()
    await bury(world, 200)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    await passing(world, asyncio.create_task(replays.run("r1", runner="a")))
    waiting = await replays.get("r1")
    assert (waiting.state, waiting.runner) == (ReplayState.RUNNING, None)
    assert waiting.awaits == "the outcome of 5 letters, the canary"
    assert await tally(world, "r1") == {EntryStatus.SENT: 5, EntryStatus.SELECTED: 195}


async def test_a_few_that_die_again_below_the_guard_stop_nothing() -> None:
    world = World()
    bad = {letter.message.id for letter in (await bury(world, 400))[50::20]}
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    async with worker(world, lambda message: message.id in bad):
        ended = await run(world, replays, "r1")
        await _settled(world, "r1")
    assert ended.state is ReplayState.SENT
    assert await tally(world, "r1") == {EntryStatus.RESOLVED: 400 - len(bad), EntryStatus.FAILED: len(bad)}


async def test_a_bug_that_only_the_second_step_meets_stops_there() -> None:
    world = World()
    bad = {letter.message.id for letter in (await bury(world, 200))[5:]}
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    async with worker(world, lambda message: message.id in bad):
        paused = await run(world, replays, "r1")
    assert (paused.state, paused.step) == (ReplayState.PAUSED, 1)
    assert (await tally(world, "r1"))[EntryStatus.SELECTED] == 160


async def test_a_canary_whose_fate_never_comes_pauses_when_the_deadline_is_over() -> None:
    world = World()
    await bury(world, 200)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL, deadline=timedelta(minutes=2))
    before = world.clock.now()
    paused = await run(world, replays, "r1")
    assert paused.paused is not None
    assert paused.paused.by is PausedBy.DEADLINE
    assert "nothing was heard for 2 min of the outcome of 5 letters, the canary" in paused.paused.why
    assert timedelta(minutes=2) <= world.clock.now() - before < timedelta(minutes=3)


async def test_who_resumes_what_the_deadline_paused_goes_on_to_the_next_step() -> None:
    world = World()
    await bury(world, 200)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    await run(world, replays, "r1")
    resumed = await replays.resume("r1", actor="bob")
    assert (resumed.state, resumed.paused) == (ReplayState.RUNNING, None)
    again = await run(world, replays, "r1")
    assert again.paused is not None
    assert "35 letters, step 2 of 3" in again.paused.why
    assert (await tally(world, "r1"))[EntryStatus.SENT] == 40
    assert [(fact.state, fact.actor) for fact in world.seen(ReplayMoved)][2] == ("running", "bob")


async def test_who_resumes_what_the_guard_paused_is_stopped_again_if_it_still_fails() -> None:
    world = World()
    await bury(world, 200)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    async with worker(world, lambda message: True):
        await run(world, replays, "r1")
        await replays.resume("r1")
        again = await run(world, replays, "r1")
    assert (again.state, again.step) == (ReplayState.PAUSED, 1)
    assert (await tally(world, "r1"))[EntryStatus.SELECTED] == 160


async def test_letters_whose_fate_nobody_tells_count_neither_way() -> None:
    world = World()
    await bury(world, 60, foreign=True)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL)
    ended = await run(world, replays, "r1")
    assert (ended.state, ended.untold) == (ReplayState.SENT, 60)


async def test_more_than_a_hundred_letters_are_guarded_by_themselves() -> None:
    world = World()
    await bury(world, 100)
    replays = replays_of(world)
    assert (await replays.start(ALL, actor="ann", guard_many=True)).guard is None
    await bury(world, 1)
    assert (await replays.start(ALL, actor="ann", guard_many=True)).guard == Guard()
    assert (await replays.start(ALL, actor="ann")).guard is None


async def test_paused_by_hand_it_sends_no_more_and_gives_back_what_it_had_claimed_until_it_is_resumed() -> None:
    world = World()
    await bury(world, 50)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", rate=10)
    task = asyncio.create_task(replays.run("r1", runner="a"))
    await world.clock.advance(1.5)
    paused = await replays.pause("r1", actor="bob", why="lunch")
    assert paused.paused is not None
    assert (paused.paused.by, paused.paused.why, paused.paused.actor) == (PausedBy.HAND, "lunch", "bob")
    await passing(world, task)
    assert (task.result().state, task.result().runner) == (ReplayState.PAUSED, None)
    assert await tally(world, "r1") == {EntryStatus.SENT: 20, EntryStatus.SELECTED: 30}
    states = [letter.state for letter in (await world.letters.letters.search(ALL, limit=100)).letters]
    assert states.count(State.PENDING) == 30
    assert (await replays.run("r1", runner="b")).state is ReplayState.PAUSED
    await replays.resume("r1", actor="bob")
    assert (await run(world, replays, "r1")).state is ReplayState.SENT
    assert await tally(world, "r1") == {EntryStatus.SENT: 50}
    assert [fact.state for fact in world.seen(ReplayMoved)] == ["running", "paused", "running", "sent"]


async def test_the_rate_can_be_changed_while_it_runs() -> None:
    world = World()
    await bury(world, 50)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", rate=0.01)
    task = asyncio.create_task(replays.run("r1", runner="a"))
    await world.clock.advance(2)
    assert (await tally(world, "r1"))[EntryStatus.SENT] == 1
    await replays.change_pace("r1", NewPace(unlimited=True))
    await world.clock.advance(2)
    await asyncio.wait_for(task, 10)
    assert task.result().state is ReplayState.SENT


async def test_what_has_ended_can_be_neither_paused_nor_changed() -> None:
    world = World()
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1")
    await replays.run("r1", runner="a")
    with pytest.raises(UsageError, match="is sent: it cannot be paused"):
        await replays.pause("r1", actor="bob")
    with pytest.raises(UsageError, match="is sent: it cannot be changed"):
        await replays.change_pace("r1", NewPace(rate=1))
    with pytest.raises(UsageError, match="rate=0"):
        await replays.change_pace("r1", NewPace(rate=0))


async def test_a_paused_replay_can_be_cancelled() -> None:
    world = World()
    await bury(world, 3)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1")
    await replays.pause("r1", actor="bob")
    assert (await replays.cancel("r1", actor="bob")).state is ReplayState.CANCELLED


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (Guard(canary=0), "canary=0"),
        (Guard(share=1.5), "guard=1.5"),
        (Guard(ramp=(20, 5)), "ramp=20,5"),
        (Guard(ramp=(0, 100)), "ramp=0,100"),
        (Guard(ramp=(50, 101)), "ramp=50,101"),
    ],
)
async def test_a_guard_that_makes_no_sense_is_refused(guard: Guard, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        await replays_of(World()).start(ALL, actor="ann", guard=guard)


async def test_a_letter_that_died_again_after_it_was_selected_is_skipped_and_the_others_go() -> None:
    world = World()
    letters = await bury(world, 3)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1")
    await world.clock.advance(1)
    now = world.clock.now()
    await world.letters.letters.record([replace(letters[1], failures=(make_failure(at=now),), created_at=now)])
    await replays.run("r1", runner="a")
    entries, _ = await world.letters.ledger.entries("r1", status=EntryStatus.SKIPPED)
    assert [entry.letter for entry in entries] == [letters[1].id]
    assert "died again after it was selected" in entries[0].note
    assert (await world.letter_of(letters[1].message)).owner is None


async def test_a_replay_of_the_version_before_runs_on_as_it_was() -> None:
    world = World()
    await bury(world, 300, keys=2)
    await world.letters.ledger.freeze("old", ALL, now=world.clock.now())
    body = {
        "id": "old",
        "query": {},
        "actor": "ann",
        "created_at": world.clock.now().isoformat(),
        "state": "running",
        "total": 300,
        "rate": None,
        "reason": "",
        "runner": None,
        "runner_until": None,
        "ended_at": None,
        "waits": [],
        "again_at": None,
        "untold": 0,
    }
    await world.letters.documents.put(KIND, "old", body)
    ended = await replays_of(world).run("old", runner="a")
    assert (ended.state, ended.guard, ended.ordered) == (ReplayState.SENT, None, False)
    assert await tally(world, "old") == {EntryStatus.SENT: 300}


def test_a_document_of_a_replay_is_read_as_it_was_written() -> None:
    world = World()
    replay = Replay(id="r", query=ALL, actor="a", created_at=world.clock.now(), guard=CAREFUL, deadline=timedelta(1))
    assert msgspec.convert(msgspec.to_builtins(replay), Replay) == replay


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(0, 60, 3))
async def test_killed_at_any_step_of_a_guarded_replay_it_is_run_on_and_each_letter_goes_once(
    number: int, after: bool
) -> None:
    world = World()
    await bury(world, 40, keys=8)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1", guard=CAREFUL, ordered=True)
    done: list[str] = []
    async with worker(world, lambda message: False, done):
        calls = Calls()
        calls.die_at(number, after=after)
        store, queue = Watched(world.letters, "store", calls), Watched(world.queue, "transport", calls)
        doomed = Replays(cast(Store, store), {"default": cast(Transport, queue)}, world.events, world.clock)
        with suppress(Killed):
            await _while_time_passes(world, doomed.run("r1", runner="dead"))
        await world.clock.advance(61)
        ended = await run(world, replays, "r1", runner="b")
        await _settled(world, "r1")
    assert ended.state is ReplayState.SENT
    assert await tally(world, "r1") == {EntryStatus.RESOLVED: 40}
    assert len(set(done)) == 40


async def _while_time_passes(world: World, work: Any) -> None:
    task = asyncio.ensure_future(work)
    try:
        await passing(world, task)
        await task
    finally:
        task.cancel()


async def test_a_letter_that_was_edited_after_it_was_selected_is_skipped_and_one_edited_before_goes() -> None:
    world = World()
    early, late, _ = await bury(world, 3)
    await _edit(world, early)
    await world.clock.advance(1)
    replays = replays_of(world)
    await replays.start(ALL, actor="ann", id="r1")
    await world.clock.advance(1)
    await _edit(world, late)
    await replays.run("r1", runner="a")
    assert await tally(world, "r1") == {EntryStatus.SENT: 2, EntryStatus.SKIPPED: 1}
    entries, _ = await world.letters.ledger.entries("r1", status=EntryStatus.SKIPPED)
    assert [entry.letter for entry in entries] == [late.id]
    assert entries[0].note == "it was edited after it was selected, by bob"


async def _edit(world: World, letter: Letter) -> None:
    edit = Edit(by="bob", at=world.clock.now())
    await world.letters.versions.edit([Revision(letter.id, 0, b'{"new": 1}', (), edit)])


async def test_what_two_people_change_at_once_is_both_changed() -> None:
    world = World()
    replays = replays_of(world)
    await bury(world, 5)
    await replays.start(ALL, actor="ann", id="r1", rate=1, guard=Guard(share=0.1))
    await asyncio.gather(replays.change_pace("r1", NewPace(rate=7)), replays.change_pace("r1", NewPace(share=0.5)))
    replay = await replays.get("r1")
    assert (replay.rate, replay.guard) == (7, Guard(share=0.5))
