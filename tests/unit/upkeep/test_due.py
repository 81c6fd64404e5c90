"""Automatic retries: what is due goes back to its source, as much at once as is allowed, unless the target is ill."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import Again, Policy, constant
from redrive.errors import StoreUnavailable, TransportUnavailable
from redrive.flow.breaker import BreakerRule
from redrive.flow.lineage import lineage
from redrive.flow.receive import Consumer
from redrive.forensics.query import Query
from redrive.model import Done, Letter, Reason, State, letter_id
from redrive.telemetry.events import (
    BackendDown,
    BatchSettled,
    BreakerMoved,
    LettersMoved,
    LettersRetried,
    MessageBuried,
)
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.transports.base import ACCEPTED, Delivery, Depth, Settlement, busy, refused, unknown
from redrive.upkeep.due import Due
from redrive.upkeep.rescue import rescue_claims
from tests.unit.support import Killed, World, running, until

RULE = BreakerRule(failures=3, wait=timedelta(seconds=30), longest=timedelta(minutes=10))
LEASE = timedelta(seconds=60)
_CALLS = ["letters.tallies", "documents.get", "letters.count", "letters.claim", "documents.put", "transport.send"]


def _due(world: World, *, owner: str = "upkeep-1", parallel: int = 100, **changes: Any) -> Due:
    transports = changes.pop("transports", {"default": world.transport})
    return Due(
        world.store,
        transports,
        world.events,
        world.clock,
        owner=owner,
        lease=LEASE,
        parallel=parallel,
        breaker=RULE,
        **changes,
    )


async def _bury(world: World, number: int = 1, *, after: float = 0, **changes: Any) -> list[Letter]:
    """Letters whose next retry is so many seconds away."""
    at = world.clock.now()
    message = {name: changes.pop(name) for name in ("priority", "source", "attempt") if name in changes}
    letters = [
        make_letter(
            make_message(**message),
            make_failure(at=at),
            at=at,
            **{"next_retry_at": at + timedelta(seconds=after), **changes},
        )
        for _ in range(number)
    ]
    await world.letters.letters.record(letters)
    return letters


async def _receive(world: World, limit: int = 100, source: str = "orders") -> list[Delivery]:
    depth = (await world.queue.depths()).get(source, Depth(0, 0, 0))
    return list(await world.queue.receive(source, limit)) if depth.ready else []


async def _die(world: World, deliveries: list[Delivery], **changes: Any) -> None:
    """They die again, and wait for their next retry."""
    await world.clock.advance(0.001)
    for one in deliveries:
        old = await world.letters.letters.get(letter_id(one.message.source, one.message.id))
        assert old is not None
        at = world.clock.now()
        again = replace(
            old, failures=(make_failure(at=at),), **{"state": State.PENDING, "next_retry_at": at, **changes}
        )
        await world.letters.letters.record([again])
    await world.queue.settle([Settlement(one, Done()) for one in deliveries])


async def _succeed(world: World, deliveries: list[Delivery]) -> None:
    ids = [letter_id(one.message.source, one.message.id) for one in deliveries]
    await world.letters.letters.move(ids, expect=[State.RETRYING], to=State.RESOLVED, now=world.clock.now())
    await world.queue.settle([Settlement(one, Done()) for one in deliveries])


async def test_a_letter_is_sent_back_when_its_time_has_come_and_not_before() -> None:
    world, (letter,) = (world := World()), await _bury(world, after=10)
    due = _due(world)
    await world.clock.advance(9.9)
    assert await due.cycle() == 0
    await world.clock.advance(0.1)
    assert await due.cycle() == 1
    (delivery,) = await _receive(world)
    found = lineage(delivery.message)
    assert found is not None
    assert (found.letter, found.retries, found.replay) == (letter.id, 1, None)
    now = await world.letter_of(letter.message)
    assert (now.state, now.owner, now.retries, now.resends) == (State.RETRYING, None, 1, 1)
    assert [(fact.source, fact.count) for fact in world.seen(LettersRetried)] == [("orders", 1)]


async def test_letters_without_a_next_retry_wait_for_a_person() -> None:
    world = World()
    await _bury(world, 3, next_retry_at=None)
    assert await _due(world).cycle() == 0


async def test_a_letter_is_claimed_before_it_is_sent_and_confirmed_after() -> None:
    world = World()
    await _bury(world)
    await _due(world).cycle()
    order = [name for name in world.calls.names if name in ("letters.claim", "transport.send", "letters.move")]
    assert order == ["letters.claim", "transport.send", "letters.move"]


async def test_the_most_urgent_go_first() -> None:
    world = World()
    (low,) = await _bury(world, priority=5)
    (high,) = await _bury(world, priority=-5)
    (normal,) = await _bury(world)
    due = _due(world, parallel=1)
    sent = []
    for _ in range(3):
        await due.cycle()
        deliveries = await _receive(world)
        sent += [one.message.id for one in deliveries]
        await _succeed(world, deliveries)
    assert sent == [high.message.id, normal.message.id, low.message.id]


async def test_of_equal_urgency_the_longest_due_goes_first() -> None:
    world = World()
    (second,) = await _bury(world, after=2)
    (first,) = await _bury(world, after=1)
    await world.clock.advance(5)
    due = _due(world, parallel=1)
    await due.cycle()
    assert [one.message.id for one in await _receive(world)] == [first.message.id]
    assert (await world.letter_of(second.message)).state is State.PENDING


async def test_b_is_not_retried_before_a_is_resolved() -> None:
    world = World()
    (a,) = await _bury(world)
    (b,) = await _bury(world, depends_on=(a.message.id,), priority=-9)
    due = _due(world)
    assert await due.cycle() == 1
    deliveries = await _receive(world)
    assert [one.message.id for one in deliveries] == [a.message.id]
    assert await due.cycle() == 0
    await _succeed(world, deliveries)
    assert await due.cycle() == 1
    assert [one.message.id for one in await _receive(world)] == [b.message.id]


async def test_no_more_are_on_their_way_than_are_allowed_at_once() -> None:
    world = World()
    await _bury(world, 10)
    due = _due(world, parallel=3)
    assert [await due.cycle() for _ in range(3)] == [3, 0, 0]
    deliveries = await _receive(world)
    await _succeed(world, deliveries[:2])
    assert [await due.cycle() for _ in range(2)] == [2, 0]


async def test_the_bound_is_for_each_target() -> None:
    world = World()
    await _bury(world, 5)
    await _bury(world, 5, source="emails")
    assert await _due(world, parallel=2).cycle() == 4


async def test_letters_go_back_to_their_own_transport() -> None:
    world, other = World(), World()
    (ours,) = await _bury(world)
    (theirs,) = await _bury(world, transport="other")
    (nobodys,) = await _bury(world, transport="kafka")
    due = _due(world, transports={"default": world.queue, "other": other.queue})
    assert await due.cycle() == 2
    assert [one.message.id for one in await _receive(world)] == [ours.message.id]
    assert [one.message.id for one in await _receive(other)] == [theirs.message.id]
    assert (await world.letter_of(nobodys.message)).state is State.PENDING


async def test_two_processors_share_the_work_and_send_nothing_twice() -> None:
    world = World()
    letters = await _bury(world, 20)
    first, second = _due(world, parallel=8), _due(world, owner="upkeep-2", parallel=8)
    for expected in (8, 8, 4):
        assert await first.cycle() + await second.cycle() == expected
        assert await first.cycle() + await second.cycle() == 0
        await _succeed(world, await _receive(world))
    sends = [args[0] for name, args, _ in world.calls.arguments if name == "transport.send"]
    sent = [message.id for messages in sends for message in messages]
    assert sorted(sent) == sorted(letter.message.id for letter in letters)


async def test_what_dies_again_and_is_taken_by_another_processor_is_a_failure_to_the_first() -> None:
    world = World()
    await _bury(world, 3)
    first, second = _due(world), _due(world, owner="upkeep-2")
    assert await first.cycle() == 3
    await _die(world, await _receive(world))
    assert await second.cycle() == 3
    await first.cycle()
    assert [fact.state for fact in world.seen(BreakerMoved)] == ["open"]


async def test_a_transport_that_is_away_takes_its_letters_back_and_counts_nothing() -> None:
    world = World()
    (letter,) = await _bury(world)
    world.calls.fail("transport.send", TransportUnavailable("queue", "refused"))
    due = _due(world)
    assert await due.cycle() == 0
    now = await world.letter_of(letter.message)
    assert replace(now, updated_at=letter.updated_at) == letter
    assert [(fact.backend, fact.why) for fact in world.seen(BackendDown)] == [
        ("default", "queue is unavailable: refused")
    ]
    assert await due.cycle() == 1


async def test_a_letter_that_its_transport_will_never_take_is_exhausted_and_the_others_are_on_their_way() -> None:
    world = World()
    good, bad = await _bury(world, 2)
    world.calls.answer("transport.send", [ACCEPTED, refused("too large")])
    due = _due(world)
    assert await due.cycle() == 1
    assert [(await world.letter_of(one.message)).state for one in (good, bad)] == [State.RETRYING, State.EXHAUSTED]
    assert [(fact.to, fact.count) for fact in world.seen(LettersMoved)] == [(State.EXHAUSTED, 1)]
    assert await due.cycle() == 0
    assert world.calls.count("transport.send") == 1


async def test_a_transport_that_stays_away_is_left_alone_longer_each_time() -> None:
    world = World()
    await _bury(world, 5)
    world.calls.break_down("transport.send", TransportUnavailable("queue"))
    due = _due(world)
    for _ in range(100):
        await due.cycle()
        await world.clock.advance(1)
    assert world.calls.count("transport.send") == 5  # three open it, one trial after 30 s, one 60 s later
    world.calls.mend("transport.send")
    await world.clock.advance(120)
    assert await due.cycle() == 1
    await _succeed(world, await _receive(world))
    assert await due.cycle() == 4


async def test_a_store_that_is_away_is_the_loops_business() -> None:
    world = World()
    await _bury(world)
    world.calls.fail("letters.claim", StoreUnavailable("letters"))
    with pytest.raises(StoreUnavailable):
        await _due(world).cycle()


async def test_a_target_that_keeps_failing_is_left_alone_tried_with_one_and_taken_up_again() -> None:
    world = World()
    await _bury(world, 10)
    due = _due(world, parallel=3)
    await due.cycle()
    await _die(world, await _receive(world))
    assert await due.cycle() == 0
    await world.clock.advance(29)
    assert await due.cycle() == 0
    await world.clock.advance(2)
    assert await due.cycle() == 1
    assert await due.cycle() == 0
    await _succeed(world, await _receive(world))
    assert await due.cycle() == 3
    moves = [(fact.target, fact.state) for fact in world.seen(BreakerMoved)]
    assert moves == [("default/orders", "open"), ("default/orders", "half-open"), ("default/orders", "closed")]


async def test_a_trial_that_fails_leaves_the_target_alone_for_longer() -> None:
    world = World()
    await _bury(world, 10)
    due = _due(world, parallel=3)
    await due.cycle()
    await _die(world, await _receive(world))
    await due.cycle()
    await world.clock.advance(31)
    assert await due.cycle() == 1
    await _die(world, await _receive(world))
    assert await due.cycle() == 0
    await world.clock.advance(31)
    assert await due.cycle() == 0
    await world.clock.advance(30)
    assert await due.cycle() == 1


async def test_one_ill_target_does_not_hold_up_another() -> None:
    world = World()
    await _bury(world, 3)
    due = _due(world)
    await due.cycle()
    await _die(world, await _receive(world))
    await _bury(world, 2, source="emails")
    assert await due.cycle() == 2


@pytest.mark.parametrize("gone", ["archived", "deleted"])
async def test_a_trial_that_somebody_took_away_is_followed_by_another(gone: str) -> None:
    world = World()
    await _bury(world, 10)
    due = _due(world, parallel=3)
    await due.cycle()
    await _die(world, await _receive(world))
    await due.cycle()
    await world.clock.advance(31)
    await due.cycle()
    (trial,) = await _receive(world)
    id = letter_id("orders", trial.message.id)
    now = world.clock.now()
    await world.letters.letters.move([id], expect=[State.RETRYING], to=State.ARCHIVED, now=now)
    if gone == "deleted":
        await world.letters.letters.prune(Query(ids=(id,)), limit=1)
    assert await due.cycle() == 1


@pytest.mark.parametrize("after", [False, True])
async def test_a_processor_that_dies_while_sending_is_rescued_and_the_letter_sent_once(after: bool) -> None:
    world = World()
    (letter,) = await _bury(world)
    world.calls.die_at(_CALLS.index("transport.send"), after=after)
    with pytest.raises(Killed):
        await _due(world).cycle()
    world.calls.live()
    second = _due(world, owner="upkeep-2")
    assert await second.cycle() == 0
    assert await rescue_claims(world.store, world.events, world.clock) == 0
    await world.clock.advance(61)
    assert await rescue_claims(world.store, world.events, world.clock) == 1
    assert await second.cycle() == 1
    assert len(await _receive(world)) == 1
    assert (await world.letter_of(letter.message)).retries == 1


async def test_nothing_is_asked_of_the_store_for_targets_that_have_nothing_left() -> None:
    world = World()
    await _bury(world, 1)
    due = _due(world)
    await due.cycle()
    await _succeed(world, await _receive(world))
    await due.cycle()
    claims = world.calls.count("letters.claim")
    for _ in range(5):
        await due.cycle()
    assert world.calls.count("letters.claim") == claims


async def test_a_letter_is_retried_as_often_as_its_policy_says_and_then_it_is_exhausted() -> None:
    world = World()
    message = make_message()
    await world.queue.send([message])

    async def fails(body: Any) -> None:
        raise ConnectionError("down")

    policy = Policy(attempts=1, again=Again(3, constant("5m")))
    due = _due(world)
    async with running(Consumer(world.context(fails, policy))):
        for times in range(1, 5):
            await until(lambda times=times: len(world.seen(MessageBuried)) == times)  # type: ignore[misc]
            await world.clock.advance(300)
            assert await due.cycle() == (1 if times < 4 else 0)
    letter = await world.letter_of(message)
    assert (letter.state, letter.retries, len(letter.failures)) == (State.EXHAUSTED, 3, 4)
    assert letter.message == message


async def test_a_parked_message_is_retried_with_its_next_attempt() -> None:
    world = World(native_delay=False)
    message = make_message()
    await world.queue.send([message])
    seen: list[int] = []

    async def fails_twice(body: Any, message: Any) -> None:
        seen.append(message.attempt)
        if len(seen) < 3:
            raise ConnectionError("down")

    due = _due(world)
    async with running(Consumer(world.context(fails_twice, Policy(attempts=5, backoff=constant("15s"))))):
        for times in (1, 2):
            await until(lambda times=times: len(world.seen(BatchSettled)) == times)  # type: ignore[misc]
            letter = await world.letter_of(message)
            assert (letter.reason, letter.state) == (Reason.PARKED, State.PENDING)
            assert await due.cycle() == 0
            await world.clock.advance(15)
            assert await due.cycle() == 1
        await until(lambda: len(world.seen(BatchSettled)) == 3)
    assert seen == [1, 2, 3]
    assert (await world.letter_of(message)).state is State.RESOLVED


async def test_processors_that_count_at_the_same_time_do_not_fill_the_same_room_twice() -> None:
    world = World()
    await _bury(world, 100)
    processors = [_due(world, owner=f"upkeep-{n}", parallel=8) for n in range(5)]
    done = 0
    while done < 100:
        await asyncio.gather(*(processor.cycle() for processor in processors))
        under_way = await _receive(world)
        assert 0 < len(under_way) <= 8
        await _succeed(world, under_way)
        done += len(under_way)


async def test_who_counts_before_another_has_claimed_undoes_its_claim() -> None:
    world = World()
    letters = await _bury(world, 20)
    first, second = _due(world, parallel=8), _due(world, owner="upkeep-2", parallel=8)
    claim, others = world.letters.letters.claim, list[int]()

    async def late(*args: Any, **kwargs: Any) -> Any:
        """While the first is about to claim, the second counts, claims and sends."""
        if not others:
            others.append(0)
            others[0] = await second.cycle()
        return await claim(*args, **kwargs)

    world.letters.letters.claim = late  # type: ignore[method-assign]
    assert (await first.cycle(), others) == (0, [8])
    assert len(await _receive(world)) == 8
    states = [(await world.letter_of(letter.message)).state for letter in letters]
    assert (states.count(State.RETRYING), states.count(State.PENDING)) == (8, 12)


async def test_retries_that_nothing_was_heard_of_for_an_hour_keep_no_others_from_their_turn() -> None:
    """Their queue was deleted, or their broker has lost them."""
    world = World()
    await _bury(world, 6)
    due = _due(world, parallel=2)
    assert await due.cycle() == 2
    await world.clock.advance(3599)
    assert await due.cycle() == 0
    await world.clock.advance(2)
    assert [await due.cycle() for _ in range(2)] == [2, 0]
    await world.clock.advance(3601)
    assert [await _due(world, owner="new", parallel=2).cycle() for _ in range(2)] == [2, 0]


async def test_a_queue_that_is_full_takes_its_letters_later_and_those_beside_it_are_on_their_way() -> None:
    world = World()
    taken, full = await _bury(world, 2)
    world.calls.answer("transport.send", [ACCEPTED, busy("the queue is full")])
    due = _due(world)
    assert await due.cycle() == 1
    assert [(await world.letter_of(one.message)).state for one in (taken, full)] == [State.RETRYING, State.PENDING]
    assert (await world.letter_of(full.message)).retries == 0
    assert await due.cycle() == 1


async def test_what_may_have_been_taken_stays_claimed_until_its_lease_ends_where_it_could_be_doubled() -> None:
    world = World()
    (letter,) = await _bury(world)
    world.queue.features = replace(world.queue.features, idempotent_send=False)
    world.calls.answer("transport.send", [unknown("the connection broke")])
    due = _due(world)
    assert [await due.cycle() for _ in range(3)] == [0, 0, 0]
    assert (await world.letter_of(letter.message)).state is State.RETRYING
    await world.clock.advance(61)
    assert await rescue_claims(world.store, world.events, world.clock) == 1
    assert await due.cycle() == 1
    assert (await world.letter_of(letter.message)).retries == 1


async def test_an_edited_letter_that_its_handler_could_not_decode_is_not_retried_and_waits_for_somebody() -> None:
    world = World()
    edited, plain = await _bury(world, version=1), await _bury(world)
    due = _due(world, fits=lambda message: "charge cannot decode it")
    assert await due.cycle() == 1
    assert (await world.letter_of(edited[0].message)).state is State.EXHAUSTED
    assert (await world.letter_of(plain[0].message)).state is State.RETRYING
