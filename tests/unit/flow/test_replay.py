"""Campaigns: exactly what was selected, once, whoever dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.errors import ReplayExists, StoreUnavailable, TransportUnavailable, UnknownReplay, UsageError
from redrive.flow.lineage import LETTER, REPLAY, named, sent_back
from redrive.flow.receive import Consumer
from redrive.flow.replay import Replay, Replays, ReplayState, owner_of
from redrive.forensics.query import Query
from redrive.model import Done, Letter, Message, State
from redrive.stores.base import EntryStatus
from redrive.telemetry.events import LetterResolved, MessageBuried, ReplayMoved
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.transports.base import ACCEPTED, Delivery, Depth, SendResult, Settlement, Transport, busy, refused, unknown
from tests.unit.support import SOON, Killed, World, running, until

ALL = Query()


def _replays(world: World, transports: Mapping[str, Transport] | None = None) -> Replays:
    known = {"default": world.transport} if transports is None else transports
    return Replays(world.store, known, world.events, world.clock)


async def _bury(world: World, number: int, **changes: Any) -> list[Letter]:
    letters = [make_letter(make_message(), at=world.clock.now(), **changes) for _ in range(number)]
    await world.letters.letters.record(letters)
    return letters


async def _queued(world: World) -> list[Delivery]:
    if not (await _depth(world)).ready:
        return []
    return list(await world.queue.receive("orders", 10_000))


async def _depth(world: World) -> Depth:
    return (await world.queue.depths()).get("orders", Depth(0, 0, 0))


async def _states(world: World) -> dict[str, State]:
    page = await world.letters.letters.search(ALL, limit=10_000)
    return {letter.id: letter.state for letter in page.letters}


async def test_starting_sends_nothing_yet_and_says_how_many_it_will() -> None:
    world = World()
    await _bury(world, 3)
    replay = await _replays(world).start(ALL, actor="ann", reason="fixed")
    assert (replay.state, replay.total, replay.actor, replay.reason) == (ReplayState.RUNNING, 3, "ann", "fixed")
    assert (await _depth(world)).total == 0
    assert [(fact.state, fact.total) for fact in world.seen(ReplayMoved)] == [("running", 3)]


async def test_running_sends_each_selected_letter_back_with_its_lineage() -> None:
    world = World()
    letters = await _bury(world, 450)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    sent: list[int] = []
    ended = await replays.run(replay.id, runner="a", progress=sent.append)
    assert (ended.state, ended.runner, ended.ended_at) == (ReplayState.SENT, None, world.clock.now())
    assert sum(sent) == 450
    queued = await _queued(world)
    assert {one.message.id for one in queued} == {letter.message.id for letter in letters}
    assert {one.message.header(REPLAY) for one in queued} == {replay.id.encode()}
    assert {named(one.message.header(LETTER) or b"") for one in queued} == {letter.id for letter in letters}
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.SENT: 450}
    assert [fact.state for fact in world.seen(ReplayMoved)] == ["running", "sent"]


async def test_letters_are_claimed_before_they_are_sent_and_confirmed_after() -> None:
    world = World()
    await _bury(world, 1)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    world.calls.names.clear()
    await replays.run(replay.id, runner="a")
    acts = ("letters.claim", "letters.move", "transport", "ledger.mark")
    order = [name for name in world.calls.names if name.startswith(acts)]
    assert order[:3] == ["letters.claim", "transport.send", "letters.move"]
    assert "ledger.mark" in order[3:]


async def test_a_rerun_of_a_replay_that_ended_is_a_no_op() -> None:
    world = World()
    await _bury(world, 3)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    await _bury(world, 2)
    world.calls.names.clear()
    assert (await replays.run(replay.id, runner="b")).state is ReplayState.SENT
    assert "transport.send" not in world.calls.names
    assert len(await _queued(world)) == 3


async def test_letters_that_die_after_it_was_started_are_not_touched() -> None:
    world = World()
    chosen = await _bury(world, 2)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    later = await _bury(world, 3)
    await replays.run(replay.id, runner="a")
    assert {one.message.id for one in await _queued(world)} == {letter.message.id for letter in chosen}
    states = await _states(world)
    assert {states[letter.id] for letter in later} == {State.PENDING}


async def test_a_replay_that_selected_nothing_stays_one_of_nothing() -> None:
    world = World()
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    assert replay.total == 0
    await _bury(world, 3)
    ended = await replays.run(replay.id, runner="a")
    assert (ended.state, ended.total) == (ReplayState.SENT, 0)
    assert await _queued(world) == []


@pytest.mark.parametrize("state", [State.RESOLVED, State.ARCHIVED, State.RETRYING])
async def test_a_letter_that_changed_since_it_was_selected_is_skipped_with_a_note(state: State) -> None:
    world = World()
    changed, same = await _bury(world, 2)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await world.letters.letters.move([changed.id], expect=[State.PENDING], to=state, now=world.clock.now())
    await replays.run(replay.id, runner="a")
    assert [one.message.id for one in await _queued(world)] == [same.message.id]
    entries, _ = await world.letters.ledger.entries(replay.id, status=EntryStatus.SKIPPED)
    assert [(one.letter, bool(one.note)) for one in entries] == [(changed.id, True)]
    assert (await _states(world))[changed.id] is state


async def test_a_letter_that_was_deleted_since_is_skipped() -> None:
    world = World()
    gone, _ = await _bury(world, 2)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await world.letters.letters.prune(Query(ids=(gone.id,)), limit=1)
    await replays.run(replay.id, runner="a")
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.SENT: 1, EntryStatus.SKIPPED: 1}


@pytest.mark.parametrize("state", [State.RESOLVED, State.ARCHIVED, State.RETRYING, State.REPLAYING])
async def test_only_what_waits_is_selected(state: State) -> None:
    world = World()
    await _bury(world, 1, state=state)
    await _bury(world, 1)
    await _bury(world, 1, state=State.EXHAUSTED)
    assert (await _replays(world).start(ALL, actor="ann")).total == 2


async def test_a_letter_that_waits_for_another_is_left_waiting() -> None:
    world = World()
    (first,) = await _bury(world, 1)
    (second,) = await _bury(world, 1, depends_on=(first.message.id,))
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    assert [one.message.id for one in await _queued(world)] == [first.message.id]
    entries, _ = await world.letters.ledger.entries(replay.id, status=EntryStatus.SKIPPED)
    assert [one.letter for one in entries] == [second.id]
    assert "waits for another" in entries[0].note
    await world.letters.letters.move([first.id], expect=[State.REPLAYING], to=State.RESOLVED, now=world.clock.now())
    again = await replays.start(ALL, actor="ann")
    await replays.run(again.id, runner="a")
    assert await world.letters.ledger.tally(again.id) == {EntryStatus.SENT: 1}


async def test_a_letter_that_its_transport_will_never_take_is_skipped_with_a_note_and_the_others_go() -> None:
    world = World()
    letters = await _bury(world, 300)
    world.transport = RefusesOne(world, letters[7].message.id)  # type: ignore[assignment]
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    assert (await replays.run(replay.id, runner="a")).state is ReplayState.SENT
    assert len(await _queued(world)) == 299
    entries, _ = await world.letters.ledger.entries(replay.id, status=EntryStatus.SKIPPED)
    assert [(one.letter, one.note) for one in entries] == [(letters[7].id, "too large")]
    assert (await _states(world))[letters[7].id] is State.PENDING


class RefusesOne:
    """A transport that takes what is sent, but for one message."""

    def __init__(self, world: World, bad: str) -> None:
        self._queue, self._bad = world.queue, bad

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        await self._queue.send([one for one in messages if one.id != self._bad])
        return [refused("too large") if one.id == self._bad else ACCEPTED for one in messages]


async def test_a_letter_of_a_transport_that_this_process_has_not_is_skipped_with_a_note() -> None:
    world = World()
    (foreign,) = await _bury(world, 1, transport="kafka")
    (ours,) = await _bury(world, 1)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    assert [one.message.id for one in await _queued(world)] == [ours.message.id]
    entries, _ = await world.letters.ledger.entries(replay.id, status=EntryStatus.SKIPPED)
    why = "this process has no transport 'kafka': set `transports.kafka`"
    assert [(one.letter, one.note) for one in entries] == [(foreign.id, why)]
    left = await world.letter_of(foreign.message)
    assert (left.state, left.owner, left.resends) == (State.PENDING, None, 0)


async def test_a_letter_that_was_claimed_in_vain_is_as_it_was_before() -> None:
    world = World()
    waiting = await _bury(world, 1, transport="kafka", next_retry_at=world.clock.now())
    exhausted = await _bury(world, 1, transport="kafka", state=State.EXHAUSTED, retries=2, resends=3)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    for before in (*waiting, *exhausted):
        now = await world.letter_of(before.message)
        assert replace(now, updated_at=before.updated_at, replay=None) == before


async def test_letters_go_back_to_the_transport_they_came_from() -> None:
    world, other = World(), World()
    await _bury(world, 2)
    (foreign,) = await _bury(world, 1, transport="other")
    replays = _replays(world, {"default": world.queue, "other": other.queue})
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    assert len(await _queued(world)) == 2
    assert [one.message.id for one in await _queued(other)] == [foreign.message.id]


def _steps() -> list[tuple[int, bool]]:
    return [(number, after) for number in range(20) for after in (False, True)]


@pytest.mark.parametrize(("number", "after"), _steps())
async def test_killed_at_any_step_it_is_run_on_by_another_and_each_letter_is_sent_once(
    number: int, after: bool
) -> None:
    world = World()
    letters = await _bury(world, 3)
    await _bury(world, 1, transport="kafka")
    world.calls.die_at(number, after=after)
    dead = False
    try:
        replay = await _replays(world).start(ALL, actor="ann", id="r1")
        await _replays(world).run(replay.id, runner="a")
    except Killed:
        dead = True
    world.calls.live()
    await world.clock.advance(61)
    await _replays(world).start(ALL, actor="ann", id="r1")
    ended = await _replays(world).run("r1", runner="b")
    assert (ended.state, ended.total) == (ReplayState.SENT, 4)
    assert await world.letters.ledger.tally("r1") == {EntryStatus.SENT: 3, EntryStatus.SKIPPED: 1}
    queued = await _queued(world)
    assert sorted(one.message.id for one in queued) == sorted(letter.message.id for letter in letters)
    for letter in letters:
        now = await world.letter_of(letter.message)
        assert (now.state, now.owner, now.resends) == (State.REPLAYING, None, 1)
    assert dead or number > 13


async def test_who_dies_before_the_selection_is_written_down_has_started_nothing() -> None:
    world = World()
    await _bury(world, 3)
    world.calls.fail("ledger.freeze", Killed())
    with pytest.raises(Killed):
        await _replays(world).start(ALL, actor="ann", id="r1")
    await world.clock.advance(61)
    assert (await _replays(world).run("r1", runner="b")).total == 0
    assert await _queued(world) == []


async def test_a_runner_that_is_killed_leaves_it_to_others_when_its_lease_ends() -> None:
    world = World()
    await _bury(world, 3)
    replay = await _replays(world).start(ALL, actor="ann")
    world.calls.fail("transport.send", Killed())
    with pytest.raises(Killed):
        await _replays(world).run(replay.id, runner="a")
    assert (await _replays(world).run(replay.id, runner="b")).state is ReplayState.RUNNING
    assert await _queued(world) == []
    await world.clock.advance(61)
    assert (await _replays(world).run(replay.id, runner="b")).state is ReplayState.SENT
    assert len(await _queued(world)) == 3


@pytest.mark.parametrize("error", [StoreUnavailable("letters"), asyncio.CancelledError()])
async def test_a_runner_that_gives_up_lets_others_go_on_at_once(error: BaseException) -> None:
    world = World()
    await _bury(world, 3)
    replay = await _replays(world).start(ALL, actor="ann")
    world.calls.fail("letters.claim", error)
    with pytest.raises(type(error)):
        await _replays(world).run(replay.id, runner="a")
    assert (await _replays(world).run(replay.id, runner="b")).state is ReplayState.SENT
    assert len(await _queued(world)) == 3


async def test_two_runners_at_once_send_nothing_twice() -> None:
    world = World()
    await _bury(world, 1000)
    replay = await _replays(world).start(ALL, actor="ann")
    await asyncio.gather(*(_replays(world).run(replay.id, runner=f"runner-{n}") for n in range(5)))
    sends = [args[0] for name, args, _ in world.calls.arguments if name == "transport.send"]
    assert sum(len(messages) for messages in sends) == 1000
    assert (await _replays(world).get(replay.id)).state is ReplayState.SENT


async def test_a_rate_is_kept() -> None:
    world = World()
    await _bury(world, 50)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann", rate=10)
    task = asyncio.create_task(replays.run(replay.id, runner="a"))
    for seconds in range(5):
        await world.clock.advance(0.5)
        assert (await _depth(world)).total == 10 * (seconds + 1)
        await world.clock.advance(0.5)
    assert (await asyncio.wait_for(task, SOON)).state is ReplayState.SENT


async def test_a_rate_under_one_a_second_is_kept_and_the_hold_on_it_too() -> None:
    world = World()
    await _bury(world, 3)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann", rate=0.01)
    task = asyncio.create_task(replays.run(replay.id, runner="a"))
    await world.clock.advance(90)
    assert (await _depth(world)).total == 1
    other = await _replays(world).run(replay.id, runner="b")
    assert (other.state, other.runner) == (ReplayState.RUNNING, "a")
    await world.clock.advance(100)
    assert (await _depth(world)).total == 2
    await world.clock.advance(210)
    assert (await asyncio.wait_for(task, SOON)).state is ReplayState.SENT
    assert world.calls.count("transport.send") == 3


async def test_a_runner_that_lost_its_hold_stops_and_leaves_the_rest_to_who_has_it() -> None:
    world = World()
    await _bury(world, 600)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    other: list[asyncio.Task[Any]] = []

    async def slow_send(messages: Any) -> Sequence[SendResult]:
        """While the first batch of the first runner is under way its lease ends, and another takes over."""
        if not other:
            await world.clock.advance(61)
            other.append(asyncio.create_task(_replays(world).run(replay.id, runner="b")))
            await asyncio.wait_for(asyncio.shield(other[0]), SOON)
        return await world.queue.send(messages)

    class Slow:
        features = world.queue.features
        send = staticmethod(slow_send)

    first = await _replays(world, {"default": Slow()}).run(replay.id, runner="a")  # type: ignore[dict-item]
    assert first.state is ReplayState.SENT
    assert (await world.letters.ledger.tally(replay.id)) == {EntryStatus.SENT: 600}
    assert len(await _queued(world)) == 600


async def test_a_runner_that_lost_its_hold_does_not_take_it_back() -> None:
    world = World()
    await _bury(world, 30)
    replay = await _replays(world).start(ALL, actor="ann", rate=10)
    other: list[asyncio.Task[Any]] = []

    async def slow_send(messages: Any) -> Sequence[SendResult]:
        await world.clock.advance(61)
        other.append(asyncio.create_task(_replays(world).run(replay.id, runner="b")))
        await until(lambda: world.calls.count("transport.send"))
        return [ACCEPTED] * len(messages)

    class Slow:
        features = world.queue.features
        send = staticmethod(slow_send)

    first = await _replays(world, {"default": Slow()}).run(replay.id, runner="a")  # type: ignore[dict-item]
    assert (first.state, first.runner, len(other)) == (ReplayState.RUNNING, "b", 1)
    await world.clock.advance(10)
    assert (await asyncio.wait_for(other[0], SOON)).state is ReplayState.SENT
    assert len(await _queued(world)) == 30


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
async def test_a_rate_that_makes_no_sense_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="rate="):
        await _replays(World()).start(ALL, actor="ann", rate=rate)


async def test_the_same_id_again_gives_the_replay_that_it_already_made() -> None:
    world = World()
    await _bury(world, 2)
    replays = _replays(world)
    first = await replays.start(ALL, actor="ann", id="nightly")
    await _bury(world, 2)
    again = await replays.start(ALL, actor="bob", id="nightly")
    assert again == first


async def test_an_id_that_has_a_replay_of_another_query_is_refused_and_changes_nothing() -> None:
    world = World()
    await _bury(world, 2)
    replays = _replays(world)
    first = await replays.start(ALL, actor="ann", id="nightly")
    with pytest.raises(ReplayExists, match="selected other letters"):
        await replays.start(Query(states=(State.EXHAUSTED,)), actor="bob", id="nightly")
    assert await replays.get("nightly") == first


@pytest.mark.parametrize("id", ["", "a b", "ü", "x" * 101, "a\nb"])
async def test_an_id_that_no_header_carries_is_refused(id: str) -> None:
    with pytest.raises(UsageError, match="no id for a replay"):
        await _replays(World()).start(ALL, actor="ann", id=id)


async def test_cancelled_in_the_middle_it_sends_no_more_and_the_rest_goes_back_to_waiting() -> None:
    world = World()
    await _bury(world, 100)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann", rate=10)
    task = asyncio.create_task(replays.run(replay.id, runner="a"))
    await world.clock.advance(1.5)
    cancelled = await replays.cancel(replay.id, actor="bob")
    assert cancelled.state is ReplayState.CANCELLED
    await world.clock.advance(30)
    assert (await asyncio.wait_for(task, SOON)).state is ReplayState.CANCELLED
    assert (await _depth(world)).total == 20
    tally = await world.letters.ledger.tally(replay.id)
    assert tally == {EntryStatus.SENT: 20, EntryStatus.SELECTED: 80}
    assert list((await _states(world)).values()).count(State.PENDING) == 80
    assert [(fact.state, fact.actor) for fact in world.seen(ReplayMoved)] == [("running", "ann"), ("cancelled", "bob")]


async def test_what_a_dead_runner_had_claimed_goes_back_to_waiting_when_it_is_cancelled() -> None:
    world = World()
    await _bury(world, 3)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    world.calls.fail("transport.send", Killed())
    with pytest.raises(Killed):
        await replays.run(replay.id, runner="a")
    assert set((await _states(world)).values()) == {State.REPLAYING}
    await replays.cancel(replay.id, actor="bob")
    assert set((await _states(world)).values()) == {State.PENDING}
    page = await world.letters.letters.search(Query(owner=owner_of(replay.id)))
    assert page.letters == ()


async def test_cancelling_what_is_cancelled_changes_nothing_and_running_it_neither() -> None:
    world = World()
    await _bury(world, 3)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    first = await replays.cancel(replay.id, actor="bob")
    await world.clock.advance(5)
    assert await replays.cancel(replay.id, actor="eve") == first
    assert await replays.run(replay.id, runner="a") == first
    assert await _queued(world) == []


async def test_a_replay_that_was_sent_cannot_be_cancelled_any_more() -> None:
    world = World()
    await _bury(world, 1)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    sent = await replays.run(replay.id, runner="a")
    await world.clock.advance(5)
    with pytest.raises(UsageError, match="has ended"):
        await replays.cancel(replay.id, actor="bob")
    assert await replays.get(replay.id) == sent
    assert set((await _states(world)).values()) == {State.REPLAYING}


async def test_an_unknown_replay_is_named() -> None:
    replays = _replays(World())
    for call in (replays.get("x"), replays.run("x", runner="a"), replays.cancel("x", actor="a")):
        with pytest.raises(UnknownReplay, match="'x'"):
            await call


async def test_replays_are_listed_newest_first() -> None:
    world = World()
    replays = _replays(world)
    ids = []
    for _ in range(3):
        ids.append((await replays.start(ALL, actor="ann")).id)
        await world.clock.advance(1)
    assert [one.id for one in await replays.list()] == ids[::-1]
    assert [one.id for one in await replays.list(limit=1)] == ids[-1:]


async def test_a_success_resolves_its_letter_and_a_second_death_rejoins_it() -> None:
    world = World()
    good, bad = await _bury(world, 2)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await world.clock.advance(1)
    await replays.run(replay.id, runner="a")

    async def handler(body: Any, message: Any) -> None:
        if message.id == bad.message.id:
            raise ValueError("still wrong")

    async with running(Consumer(world.context(handler))):
        await until(lambda: world.seen(LetterResolved) and world.seen(MessageBuried))
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.RESOLVED: 1, EntryStatus.FAILED: 1}
    assert (await world.letter_of(good.message)).state is State.RESOLVED
    dead = await world.letter_of(bad.message)
    assert (dead.state, len(dead.failures), dead.resends) == (State.EXHAUSTED, 2, 1)
    assert len(await _states(world)) == 2


async def test_a_letter_may_be_replayed_again_after_it_died_again() -> None:
    world = World()
    (letter,) = await _bury(world, 1)
    replays = _replays(world)
    for round in (1, 2):
        replay = await replays.start(ALL, actor="ann")
        await replays.run(replay.id, runner="a")
        (delivery,) = await _queued(world)
        await world.clock.advance(1)
        died = replace(letter, failures=(make_failure(at=world.clock.now()),), state=State.EXHAUSTED)
        await world.letters.letters.record([died])
        assert (await world.letter_of(letter.message)).resends == round
        await world.queue.settle([Settlement(delivery, Done())])


async def test_nothing_of_it_is_kept_in_memory_whatever_its_size() -> None:
    """It reads the ledger a batch at a time: a million need no more room than 16 MB of bodies."""
    world = World()
    letters = [make_letter(make_message(body=b"x" * 100_000), at=world.clock.now()) for _ in range(900)]
    await world.letters.letters.record(letters)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    limits = [kwargs.get("limit") for name, _, kwargs in world.calls.arguments if name == "ledger.entries"]
    assert max(limit or 10_000 for limit in limits) <= 200


async def test_while_one_of_two_transports_is_away_the_other_gets_each_message_once() -> None:
    world, other = World(), World()
    ours = await _bury(world, 3)
    theirs = await _bury(world, 3, transport="other")
    other.calls.break_down("transport.send", TransportUnavailable("other", "connection refused"))
    replays = _replays(world, {"default": world.transport, "other": other.transport})
    replay = await replays.start(ALL, actor="ann")
    for _ in range(5):
        await replays.run(replay.id, runner="upkeep")
        await world.clock.advance(60)
    sent = [message.id for name, args, _ in world.calls.arguments if name == "transport.send" for message in args[0]]
    assert sorted(sent) == sorted(letter.message.id for letter in ours)
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.SENT: 3, EntryStatus.SELECTED: 3}
    other.calls.mend("transport.send")
    assert (await replays.run(replay.id, runner="upkeep")).state is ReplayState.SENT
    assert {one.message.id for one in await _queued(other)} == {letter.message.id for letter in theirs}


# -- what is not accepted --------------------------------------------------------------------------------------------


class Answers:
    """A transport that takes what is sent, but for what a test has an answer for."""

    def __init__(self, world: World, *, idempotent: bool = True) -> None:
        self.features = replace(world.queue.features, idempotent_send=idempotent)
        self.bad: dict[str, SendResult] = {}
        self.asked: list[str] = []
        self._queue = world.queue

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        self.asked += [message.id for message in messages]
        await self._queue.send([message for message in messages if message.id not in self.bad])
        return [self.bad.get(message.id, ACCEPTED) for message in messages]


async def test_what_is_not_taken_now_stays_claimed_and_is_asked_for_with_a_pause_that_grows() -> None:
    world = World()
    letters = await _bury(world, 3)
    transport = Answers(world)
    transport.bad[letters[1].message.id] = busy("the queue is full")
    replays = _replays(world, {"default": transport})  # type: ignore[dict-item]
    replay = await replays.start(ALL, actor="ann")
    asked = []
    for second in range(120):
        before = len(transport.asked)
        waiting = await replays.run(replay.id, runner="a")
        if len(transport.asked) > before:
            asked.append(second)
        await world.clock.advance(1)
    assert asked == [0, 5, 10, 20, 40, 80]  # what took some of the others is asked soon, then after 5, 10, 20, 40 s
    assert (waiting.state, waiting.runner) == (ReplayState.RUNNING, None)
    [wait] = waiting.waits
    assert (wait.transport, wait.source, wait.why) == ("default", "orders", "the queue is full")
    assert (await world.letter_of(letters[1].message)).owner == owner_of(replay.id)
    transport.bad.clear()
    await world.clock.advance(60)
    ended = await replays.run(replay.id, runner="a")
    assert (ended.state, ended.waits) == (ReplayState.SENT, ())
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.SENT: 3}
    assert (await world.letter_of(letters[1].message)).resends == 1


async def test_a_replay_ends_when_a_target_has_taken_nothing_for_too_long() -> None:
    world = World()
    waiting = await _bury(world, 1, next_retry_at=world.clock.now())
    exhausted = await _bury(world, 1, state=State.EXHAUSTED, retries=2, resends=3)
    untouched = await _bury(world, 500)
    world.calls.break_down("transport.send", TransportUnavailable("queue", "connection refused"))
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    ended = await _run_to_its_end(world, replays, replay.id)
    assert (ended.state, ended.waits) == (ReplayState.SENT, ())
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.SKIPPED: 502}
    entries, _ = await world.letters.ledger.entries(replay.id)
    assert "connection refused" in entries[0].note
    for before in (*waiting, *exhausted, untouched[-1]):
        now = await world.letter_of(before.message)
        assert replace(now, updated_at=before.updated_at, replay=None) == before
    assert world.calls.count("transport.send") < 40


async def _run_to_its_end(world: World, replays: Replays, id: str) -> Replay:
    for _ in range(200):
        if (replay := await replays.run(id, runner="a")).state is not ReplayState.RUNNING:
            return replay
        await world.clock.advance(10)
    raise AssertionError("it does not end")


async def test_a_target_that_is_away_does_not_hold_up_the_letters_behind_it() -> None:
    world, other = World(), World()
    await _bury(world, 600, transport="other")
    await _bury(world, 600)
    other.calls.break_down("transport.send", TransportUnavailable("other"))
    replays = _replays(world, {"default": world.transport, "other": other.transport})
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.SENT: 600, EntryStatus.SELECTED: 600}
    assert other.calls.count("transport.send") == 1


async def test_the_time_that_a_target_has_is_not_begun_anew_by_another_runner() -> None:
    world = World()
    await _bury(world, 1)
    world.calls.break_down("transport.send", TransportUnavailable("queue"))
    replay = await _replays(world).start(ALL, actor="ann")
    for _ in range(95):
        ended = await _replays(world).run(replay.id, runner=world.clock.new_id())
        await world.clock.advance(10)
    assert ended.state is ReplayState.SENT


async def test_who_resumes_a_replay_asks_at_once_for_what_it_waits_for() -> None:
    world = World()
    await _bury(world, 2)
    world.calls.fail("transport.send", *[TransportUnavailable("queue")] * 3)
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    for _ in range(3):
        await world.clock.advance(20)
        await replays.run(replay.id, runner="a")
    assert (await replays.run(replay.id, runner="a")).state is ReplayState.RUNNING
    await replays.resume(replay.id)
    assert (await replays.run(replay.id, runner="a")).state is ReplayState.SENT


async def test_only_what_may_have_been_taken_is_sent_a_second_time_and_its_outcome_gets_some_time_before() -> None:
    world = World()
    letters = await _bury(world, 3)
    transport = Answers(world, idempotent=False)
    transport.bad[letters[0].message.id] = unknown("the connection broke")
    replays = _replays(world, {"default": transport})  # type: ignore[dict-item]
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    await world.clock.advance(59)
    await replays.run(replay.id, runner="a")
    assert len(transport.asked) == 3
    transport.bad.clear()
    await world.clock.advance(1)
    assert (await replays.run(replay.id, runner="a")).state is ReplayState.SENT
    assert transport.asked[3:] == [letters[0].message.id]


async def test_what_was_taken_after_all_and_has_its_outcome_is_not_sent_again() -> None:
    world = World()
    (letter,) = await _bury(world, 1)
    world.calls.fail("transport.send", TransportUnavailable("queue", "the answer got lost"))
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    back = sent_back(await world.letter_of(letter.message), now=world.clock.now(), replay=replay.id)
    await world.queue.send([back])

    async def succeeds(body: Any) -> None: ...

    async with running(Consumer(world.context(succeeds))):
        await until(lambda: world.seen(LetterResolved))
    await world.clock.advance(60)
    ended = await replays.run(replay.id, runner="a")
    assert ended.state is ReplayState.SENT
    assert world.calls.count("transport.send") == 1
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.RESOLVED: 1}


async def test_a_letter_that_is_archived_while_it_waits_is_skipped() -> None:
    world = World()
    (letter,) = await _bury(world, 1)
    world.calls.fail("transport.send", TransportUnavailable("queue"))
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    now = world.clock.now()
    await world.letters.letters.move([letter.id], expect=[State.REPLAYING], to=State.ARCHIVED, now=now)
    await world.clock.advance(60)
    assert (await replays.run(replay.id, runner="a")).state is ReplayState.SENT
    assert await world.letters.ledger.tally(replay.id) == {EntryStatus.SKIPPED: 1}


async def test_cancelled_while_it_waits_its_letters_are_as_they_were() -> None:
    world = World()
    letters = await _bury(world, 3)
    world.calls.break_down("transport.send", TransportUnavailable("queue"))
    replays = _replays(world)
    replay = await replays.start(ALL, actor="ann")
    await replays.run(replay.id, runner="a")
    await replays.cancel(replay.id, actor="bob")
    for before in letters:
        now = await world.letter_of(before.message)
        assert replace(now, updated_at=before.updated_at, replay=None) == before


async def test_a_letter_that_a_transport_cannot_carry_stops_no_other() -> None:
    world = World()
    letters = await _bury(world, 5)

    class Fragile(Answers):
        async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
            if any(message.id == letters[2].message.id for message in messages):
                raise ValueError("surrogates not allowed")
            return await super().send(messages)

    replays = _replays(world, {"default": Fragile(world)})  # type: ignore[dict-item]
    replay = await replays.start(ALL, actor="ann")
    assert (await replays.run(replay.id, runner="a")).state is ReplayState.SENT
    [skipped], _ = await world.letters.ledger.entries(replay.id, status=EntryStatus.SKIPPED)
    assert (skipped.letter, skipped.note) == (letters[2].id, "ValueError: surrogates not allowed")
    assert len(await _queued(world)) == 4


async def test_a_transport_of_before_there_were_answers_does_not_make_a_replay_run_for_ever() -> None:
    world = World()
    await _bury(world, 2)

    class Old(Answers):
        async def send(self, messages: Sequence[Message]) -> None:  # type: ignore[override]
            await super().send(messages)

    replays = _replays(world, {"default": Old(world)})  # type: ignore[dict-item]
    replay = await replays.start(ALL, actor="ann")
    await _run_to_its_end(world, replays, replay.id)
    entries, _ = await world.letters.ledger.entries(replay.id)
    assert {entry.status for entry in entries} == {EntryStatus.SKIPPED}
    assert "newer version of its plug-in" in entries[0].note
