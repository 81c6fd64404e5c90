"""Outcomes carried out: durable write first, ack last, and nothing acked that was not written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import Policy, constant
from redrive.errors import StoreUnavailable, TransportUnavailable
from redrive.flow.decision import Decision
from redrive.flow.lineage import sent_back
from redrive.flow.settle import Settled, settle
from redrive.forensics.query import Query
from redrive.model import Bury, Category, Done, Letter, Message, Outcome, Reason, Release, Retry, Stage, State
from redrive.stores.base import Entry, EntryStatus
from redrive.telemetry.events import (
    BackendDown,
    BatchSettled,
    LeaseLost,
    LetterRefused,
    LetterResolved,
    MessageBuried,
    MessageRetried,
)
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.transports.base import CannotReturn, Delivery, Depth, Settlement
from tests.unit.support import World, nothing

BURY, DONE, RETRY = Bury(Reason.ATTEMPTS), Done(), Retry(timedelta(seconds=15))
DOWN = StoreUnavailable("letters", "disk is full")


def _attempted(world: World, delivery: Delivery, outcome: Outcome, **failure: Any) -> Decision:
    failed = None if isinstance(outcome, Done | Release) else make_failure(at=world.clock.now(), **failure)
    return Decision(delivery, outcome, failed, 0.25)


async def _settle(world: World, *pairs: tuple[Delivery, Outcome], policy: Policy | None = None) -> bool:
    batch = [_attempted(world, delivery, outcome) for delivery, outcome in pairs]
    return (await settle(world.context(nothing, policy), batch, timedelta(seconds=5))).written


async def _replaying(world: World, replay: str = "r1") -> tuple[Letter, Delivery]:
    """A letter that a replay has sent, and its message as it arrives."""
    letter = make_letter()
    await world.letters.letters.record([letter])
    await world.letters.ledger.freeze(replay, Query(ids=(letter.id,)), now=world.clock.now())
    now = world.clock.now()
    (claimed,) = await world.letters.letters.claim(
        Query(ids=(letter.id,)), to=State.REPLAYING, owner="o", now=now, until=now, limit=1, replay=replay
    )
    await world.letters.letters.move([letter.id], expect=[State.REPLAYING], to=State.REPLAYING, now=now)
    await world.letters.ledger.mark([Entry(replay, letter.id, EntryStatus.SENT, now)])
    await world.clock.advance(1)
    (delivery,) = await world.deliver(sent_back(claimed, now=world.clock.now(), replay=replay))
    return letter, delivery


async def _depth(world: World) -> Depth:
    return (await world.queue.depths()).get("orders", Depth(0, 0, 0))


async def test_nothing_of_a_success_touches_the_store() -> None:
    world = World()
    (delivery,) = await world.deliver(make_message())
    assert await _settle(world, (delivery, DONE)) is True
    assert world.calls.names == ["transport.settle"]
    assert (await _depth(world)).total == 0


async def test_a_letter_is_durable_before_its_message_is_acked() -> None:
    world = World()
    (delivery,) = await world.deliver(make_message())
    await _settle(world, (delivery, BURY))
    assert world.calls.names == ["letters.record", "transport.settle"]
    assert (await world.letter_of(delivery.message)).reason is Reason.ATTEMPTS
    assert (await _depth(world)).total == 0


async def test_a_resolution_is_durable_before_its_message_is_acked() -> None:
    world = World()
    _, delivery = await _replaying(world)
    world.calls.names.clear()
    await _settle(world, (delivery, DONE))
    assert world.calls.names[-1] == "transport.settle"
    assert {"letters.move", "ledger.mark"} <= set(world.calls.names[:-1])


async def test_a_whole_batch_is_one_write_and_one_settlement() -> None:
    world = World()
    deliveries = await world.deliver(*(make_message() for _ in range(50)))
    await _settle(world, *((delivery, BURY) for delivery in deliveries))
    assert world.calls.names == ["letters.record", "transport.settle"]
    assert await world.letters.letters.count(Query()) == 50


async def test_a_retry_is_left_to_a_transport_that_can_delay() -> None:
    world = World()
    (delivery,) = await world.deliver(make_message())
    await _settle(world, (delivery, RETRY))
    assert world.calls.names == ["transport.settle"]
    assert (await _depth(world)).delayed == 1
    await world.clock.advance(15)
    (again,) = await world.queue.receive("orders", 1)
    assert again.message.attempt == 2
    assert len(again.failures) == 1


async def test_a_retry_is_parked_in_the_store_where_the_transport_cannot_delay() -> None:
    world = World(native_delay=False)
    (delivery,) = await world.deliver(make_message())
    await _settle(world, (delivery, RETRY))
    letter = await world.letter_of(delivery.message)
    assert (letter.reason, letter.state, letter.message.attempt) == (Reason.PARKED, State.PENDING, 2)
    assert world.calls.names == ["letters.record", "transport.settle"]
    assert (await _depth(world)).total == 0
    assert world.seen(MessageBuried) == []
    assert len(world.seen(MessageRetried)) == 1


async def test_when_the_store_is_down_exactly_the_affected_are_given_back_and_the_others_acked() -> None:
    world = World()
    first, second, third = await world.deliver(make_message(), make_message(), make_message())
    world.calls.fail("letters.record", DOWN)
    assert await _settle(world, (first, DONE), (second, BURY), (third, RETRY)) is False
    (_, (settlements,), _) = world.calls.arguments[-1]
    assert [type(one.outcome) for one in settlements] == [Done, Retry, Retry]
    assert settlements[1].outcome == Retry(timedelta(seconds=5)), "its attempt stays counted"
    assert await _depth(world) == Depth(0, 2, 0)
    assert world.seen(BackendDown)[0].why == "letters is unavailable: disk is full"
    assert world.seen(MessageBuried) == []


async def test_what_could_not_be_buried_keeps_its_attempt_and_its_failure_once() -> None:
    world = World()
    context = world.context(nothing)
    (delivery,) = await world.deliver(make_message())
    failed = _attempted(world, delivery, BURY)
    for _ in range(3):
        world.calls.fail("letters.record", DOWN)
        await settle(context, [failed], timedelta(seconds=5))
        await world.clock.advance(5)
        (again,) = await world.queue.receive("orders", 1)
        assert again.message == replace(delivery.message, attempt=2)
        assert again.failures == (failed.failure,)
        failed = replace(failed, delivery=again)


async def test_where_the_store_is_down_a_parked_retry_is_given_back_too() -> None:
    world = World(native_delay=False)
    (delivery,) = await world.deliver(make_message())
    world.calls.fail("letters.record", DOWN)
    assert await _settle(world, (delivery, RETRY)) is False
    assert (await _depth(world)).total == 1


@pytest.mark.parametrize("call", ["letters.move", "ledger.mark"])
async def test_a_success_whose_resolution_cannot_be_written_is_given_back(call: str) -> None:
    world = World()
    letter, delivery = await _replaying(world)
    world.calls.fail(call, DOWN)
    assert await _settle(world, (delivery, DONE)) is False
    assert (await _depth(world)).total == 1
    await world.clock.advance(5)
    (again,) = await world.queue.receive("orders", 1)
    assert await _settle(world, (again, DONE)) is True
    assert (await world.letter_of(letter.message)).state is State.RESOLVED
    assert await world.letters.ledger.tally("r1") == {EntryStatus.RESOLVED: 1}


@pytest.mark.parametrize("call", ["letters.record", "letters.move", "ledger.mark"])
async def test_no_letter_is_left_behind_of_a_message_that_was_given_back_and_then_succeeded(call: str) -> None:
    """Whichever of the writes fails: what was given back has no letter, or its success resolves it."""
    world = World()
    _, replayed = await _replaying(world)
    fresh = make_message()
    (buried,) = await world.deliver(fresh)
    world.calls.fail(call, DOWN)
    assert await _settle(world, (buried, BURY), (replayed, BURY)) is (call == "letters.move")
    await world.clock.advance(5)
    await _settle_all(world, DONE)
    left = await world.letters.letters.search(Query(states=(State.PENDING, State.EXHAUSTED)))
    queued = await _depth(world)
    expected = 2 if call == "letters.move" else 0
    assert (len(left.letters), queued.total) == (expected, 0)


async def test_a_letter_that_was_recorded_is_acked_even_where_a_resolution_beside_it_could_not_be_written() -> None:
    world = World()
    _, replayed = await _replaying(world)
    (buried,) = await world.deliver(make_message())
    world.calls.fail("letters.move", DOWN)
    assert await _settle(world, (buried, BURY), (replayed, DONE)) is False
    (_, (settlements,), _) = world.calls.arguments[-1]
    assert [type(one.outcome) for one in settlements] == [Done, Release]
    assert len(world.seen(MessageBuried)) == 1


async def test_a_letter_that_the_store_refuses_is_kept_back_and_the_store_is_not_spared_for_it() -> None:
    world = World()
    good, bad, done = await world.deliver(make_message(), make_message(), make_message())
    refusal = ValueError("no such value")
    context = world.context(nothing)
    batch = [_attempted(world, good, BURY), _attempted(world, bad, BURY), _attempted(world, done, DONE)]
    record = world.letters.letters.record

    async def refusing(letters: Sequence[Letter]) -> None:
        if any(letter.message.id == bad.message.id for letter in letters):
            raise refusal
        await record(letters)

    world.letters.letters.record = refusing  # type: ignore[method-assign]
    assert await settle(context, batch) == Settled(written=True, kept_back=(bad,), unwritten=(batch[1],))
    assert await _depth(world) == Depth(0, 1, 0)
    assert [fact.message for fact in world.seen(LetterRefused)] == [bad.message.id]
    assert [fact.message for fact in world.seen(MessageBuried)] == [good.message.id]


async def _settle_all(world: World, outcome: Outcome) -> None:
    """Whatever is queued, settled with that outcome."""
    if (await _depth(world)).ready:
        deliveries = await world.queue.receive("orders", 100)
        await _settle(world, *((delivery, outcome) for delivery in deliveries))


async def test_the_same_batch_carried_out_twice_changes_nothing_and_is_told_once() -> None:
    world = World()
    (delivery,) = await world.deliver(make_message())
    context, batch = world.context(nothing), [_attempted(world, delivery, BURY)]
    world.calls.fail("transport.settle", TransportUnavailable("queue"))
    with pytest.raises(TransportUnavailable):
        await settle(context, batch)
    await world.clock.advance(1)
    await settle(context, batch)
    assert len((await world.letter_of(delivery.message)).failures) == 1
    assert len(world.seen(MessageBuried)) == 1
    assert len(world.seen(BatchSettled)) == 1


async def test_a_success_resolves_the_letter_it_was_sent_back_from_and_its_ledger() -> None:
    world = World()
    letter, delivery = await _replaying(world)
    await _settle(world, (delivery, DONE))
    assert (await world.letter_of(letter.message)).state is State.RESOLVED
    assert await world.letters.ledger.tally("r1") == {EntryStatus.RESOLVED: 1}
    assert [(one.letter, one.replay) for one in world.seen(LetterResolved)] == [(letter.id, "r1")]


async def test_a_second_death_rejoins_its_letter_and_its_ledger_says_failed_and_why() -> None:
    world = World()
    letter, delivery = await _replaying(world)
    await _settle(world, (delivery, BURY), policy=Policy(again=5))
    now = await world.letter_of(letter.message)
    assert (now.state, len(now.failures), now.message) == (State.EXHAUSTED, 2, letter.message)
    entries, _ = await world.letters.ledger.entries("r1")
    assert [(one.status, one.note) for one in entries] == [
        (EntryStatus.FAILED, "builtins.RuntimeError: it did not work")
    ]
    assert await world.letters.letters.count(Query()) == 1


async def test_a_retry_of_a_replayed_message_is_no_outcome_yet() -> None:
    world = World()
    letter, delivery = await _replaying(world)
    await _settle(world, (delivery, RETRY))
    assert (await world.letter_of(letter.message)).state is State.REPLAYING
    assert await world.letters.ledger.tally("r1") == {EntryStatus.SENT: 1}


async def test_a_success_after_a_crash_resolves_the_letter_that_was_recorded_before_it() -> None:
    """Recorded, then killed before the ack: the message comes back, and this time it works."""
    world = World()
    (delivery,) = await world.deliver(make_message())
    await world.letters.letters.record([make_letter(delivery.message)])
    await world.clock.advance(61)
    (again,) = await world.queue.receive("orders", 1)
    assert again.redelivered
    await _settle(world, (again, DONE))
    assert (await world.letter_of(delivery.message)).state is State.RESOLVED


async def test_copied_headers_resolve_nobody_elses_letter() -> None:
    world = World()
    letter, delivery = await _replaying(world)
    (copy,) = await world.deliver(make_message(headers=delivery.message.headers))
    await _settle(world, (copy, DONE))
    assert (await world.letter_of(letter.message)).state is State.REPLAYING


async def test_what_somebody_archived_meanwhile_stays_archived() -> None:
    world = World()
    letter, delivery = await _replaying(world)
    await world.letters.letters.move([letter.id], expect=[State.REPLAYING], to=State.ARCHIVED, now=world.clock.now())
    await _settle(world, (delivery, DONE))
    assert (await world.letter_of(letter.message)).state is State.ARCHIVED
    assert world.seen(LetterResolved) == []


def _crashed(delivery: Delivery, world: World) -> Decision:
    failure = make_failure(
        type="redrive.Crashed",
        stage=Stage.DELIVERY,
        category=Category.PERMANENT,
        retryable=False,
        at=world.clock.now(),
        attempt=delivery.message.attempt,
    )
    return Decision(delivery, Bury(Reason.CRASHED), failure)


@pytest.mark.parametrize("state", [State.PENDING, State.EXHAUSTED])
async def test_a_crash_does_not_spoil_the_story_of_a_letter_that_is_recorded(state: State) -> None:
    """Buried at its last attempt, killed before the ack: the next delivery only looks like a crash."""
    world = World()
    (delivery,) = await world.deliver(make_message())
    letter = make_letter(delivery.message, state=state)
    await world.letters.letters.record([letter])
    await world.clock.advance(1)
    await settle(world.context(nothing), [_crashed(delivery, world)])
    assert await world.letter_of(delivery.message) == letter
    assert (await _depth(world)).total == 0


@pytest.mark.parametrize("state", [State.RETRYING, State.REPLAYING, State.RESOLVED])
async def test_a_crash_of_a_message_that_was_sent_back_is_part_of_the_story(state: State) -> None:
    world = World()
    (delivery,) = await world.deliver(make_message())
    await world.letters.letters.record([make_letter(delivery.message, state=state)])
    await world.clock.advance(1)
    await settle(world.context(nothing), [_crashed(delivery, world)])
    letter = await world.letter_of(delivery.message)
    assert (letter.reason, len(letter.failures)) == (Reason.CRASHED, 2)


async def test_a_crash_that_nobody_recorded_is_a_letter() -> None:
    world = World()
    (delivery,) = await world.deliver(make_message())
    await settle(world.context(nothing), [_crashed(delivery, world)])
    assert (await world.letter_of(delivery.message)).reason is Reason.CRASHED


async def test_facts_are_told_of_the_batch_and_of_each_failure() -> None:
    world = World()
    done, retried, buried, released = await world.deliver(
        make_message(), make_message(tenant="acme", correlation_id="c-1"), make_message(tenant="acme"), make_message()
    )
    await _settle(world, (done, DONE), (retried, RETRY), (buried, BURY), (released, Release()))
    (batch,) = world.seen(BatchSettled)
    assert (batch.done, batch.retried, batch.buried, batch.released) == (1, 1, 1, 1)
    assert batch.seconds == (0.25,) * 4
    (retry,) = world.seen(MessageRetried)
    assert (retry.message, retry.tenant, retry.correlation_id, retry.after) == (
        retried.message.id,
        "acme",
        "c-1",
        timedelta(seconds=15),
    )
    (bury,) = world.seen(MessageBuried)
    letter = await world.letter_of(buried.message)
    assert (bury.letter, bury.group, bury.reason, bury.state) == (
        letter.id,
        letter.group,
        letter.reason,
        State.PENDING,
    )


async def test_a_lease_that_was_lost_is_reported() -> None:
    world = World()
    (delivery,) = await world.deliver(make_message())
    await world.clock.advance(61)
    (other,) = await world.queue.receive("orders", 1)
    await _settle(world, (delivery, DONE))
    assert [fact.messages for fact in world.seen(LeaseLost)] == [(delivery.message.id,)]
    assert (await _depth(world)).leased == 1
    await _settle(world, (other, DONE))
    assert (await _depth(world)).total == 0


async def test_a_subscriber_that_fails_costs_no_message(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def broken(fact: object) -> None:
        raise ZeroDivisionError

    world.events.subscribe(broken)
    (delivery,) = await world.deliver(make_message())
    assert await _settle(world, (delivery, BURY)) is True
    assert (await _depth(world)).total == 0
    assert "a subscriber failed" in caplog.text


async def test_retries_of_a_letter_are_used_up_where_attempts_are_parked() -> None:
    """The whole way on a transport without delay: an automatic retry stays one, however often it is parked."""
    world = World(native_delay=False)
    policy = Policy(attempts=2, backoff=constant("1s"), again=2)
    message = make_message()
    await world.queue.send([message])
    rounds = 0
    while (await _depth(world)).ready:
        rounds += 1
        (delivery,) = await world.queue.receive("orders", 1)
        outcome = RETRY if delivery.message.attempt < 2 else BURY
        await _settle(world, (delivery, outcome), policy=policy)
        await world.clock.advance(60)
        await _send_due(world)
        assert rounds < 20
    letter = await world.letter_of(message)
    assert rounds == 6
    assert (letter.state, letter.retries, len(letter.failures)) == (State.EXHAUSTED, 2, 6)


async def _send_due(world: World) -> None:
    now = world.clock.now()
    letters = await world.letters.letters.claim(
        Query(due=now), to=State.RETRYING, owner="o", now=now, until=now + timedelta(seconds=60), limit=10
    )
    messages: list[Message] = [sent_back(letter, now=now) for letter in letters]
    await world.queue.send(messages)
    ids = [letter.id for letter in letters]
    await world.letters.letters.move(ids, expect=[State.RETRYING], to=State.RETRYING, now=now)


async def test_a_replay_whose_message_was_parked_on_its_way_still_gets_its_outcome() -> None:
    world = World(native_delay=False)
    letter, delivery = await _replaying(world)
    await _settle(world, (delivery, RETRY))
    await world.clock.advance(60)
    await _send_due(world)
    (again,) = await world.queue.receive("orders", 1)
    await _settle(world, (again, DONE))
    assert (await world.letter_of(letter.message)).state is State.RESOLVED
    assert await world.letters.ledger.tally("r1") == {EntryStatus.RESOLVED: 1}


async def test_what_can_neither_be_retried_nor_buried_now_is_given_back_as_it_is() -> None:
    """A message too large to be retried, and a store that is away: it waits, and nothing goes round for ever."""
    world = World()
    delivery, other = await world.deliver(make_message(id="large"), make_message(id="small"))
    world.calls.break_down("letters.record", DOWN)
    settle_for_real = world.queue.settle
    seen: list[list[type[Outcome]]] = []

    async def settle_small(settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        seen.append([type(settlement.outcome) for settlement in settlements])
        large = {id(settlement.delivery): "too large" for settlement in settlements if _is_large_retry(settlement)}
        if large:
            raise CannotReturn(large)
        return await settle_for_real(settlements)

    world.queue.settle = settle_small  # type: ignore[method-assign]
    await _settle(world, (delivery, BURY), (other, DONE))
    assert seen[-1] == [Done, Release]
    assert len(seen) <= 3


def _is_large_retry(settlement: Settlement) -> bool:
    return settlement.delivery.message.id == "large" and isinstance(settlement.outcome, Retry)


async def test_a_message_that_no_letter_can_be_written_of_has_the_plainest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever step of ours it breaks: it is a letter that says which, and its neighbours have theirs."""

    def breaking(message: Message) -> tuple[str, ...]:
        if message.id == "bad":
            raise RecursionError("too deep")
        return ()

    monkeypatch.setattr("redrive.flow.bury.dependencies", breaking)
    world = World()
    deliveries = await world.deliver(*(make_message(id=name, body=b"\xff") for name in ("good", "bad")))
    assert await _settle(world, *((delivery, BURY) for delivery in deliveries)) is True
    found = {letter.message.id: letter for letter in (await world.letters.letters.search(Query())).letters}
    assert found["good"].reason is Reason.ATTEMPTS
    bad = found["bad"]
    assert (bad.reason, bad.category, bad.message.body) == (Reason.UNDECODABLE, Category.VALIDATION, b"\xff")
    assert bad.last.message == "to write its letter failed: RecursionError: too deep"
    assert bad.last.stage is Stage.DELIVERY
    assert (await _depth(world)).total == 0
    assert len(world.seen(MessageBuried)) == 2
