"""A consumer at work: how much it takes, how it stops, and how it bears that a backend is away."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from redrive import Message, Policy, constant, custom, immediate, never
from redrive.errors import StoreUnavailable, TransportUnavailable
from redrive.flow.receive import Consumer
from redrive.forensics.query import Query
from redrive.model import Category, Letter, Reason, State
from redrive.telemetry.events import BackendDown, BackendUp, BatchSettled, LeaseLost, MessageBuried
from redrive.testing.builders import make_message
from redrive.transports.base import Depth
from tests.unit.support import SOON, World, nothing, running, until

SECOND = timedelta(seconds=1)


class Gate:
    """A handler that holds every message until it is let through."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.most = 0
        self.handled: list[str] = []
        self.open = asyncio.Event()

    async def __call__(self, body: Any, message: Message) -> None:
        self.inside.append(message.id)
        self.most = max(self.most, len(self.inside))
        try:
            await self.open.wait()
            self.handled.append(message.id)
        finally:
            self.inside.remove(message.id)

    async def handler(self, body: Any, message: Message) -> None:
        await self(body, message)


async def _send(world: World, number: int, **changes: Any) -> list[Message]:
    messages = [make_message(**changes) for _ in range(number)]
    await world.queue.send(messages)
    return messages


async def _depth(world: World) -> Depth:
    return (await world.queue.depths()).get("orders", Depth(0, 0, 0))


def _settled(world: World) -> int:
    return sum(one.done + one.buried + one.released for one in world.seen(BatchSettled))


async def _letters(world: World) -> list[Letter]:
    return list((await world.letters.letters.search(Query(), limit=1000)).letters)


async def test_every_message_is_handled_and_acked() -> None:
    world, gate = World(), Gate()
    gate.open.set()
    messages = await _send(world, 250)
    async with running(Consumer(world.context(gate.handler, concurrency=5, batch=20))):
        await until(lambda: _settled(world) == 250)
    assert sorted(gate.handled) == sorted(message.id for message in messages)
    assert (await _depth(world)).total == 0


async def test_messages_settle_in_batches_and_not_one_by_one() -> None:
    world = World()
    await _send(world, 500)
    async with running(Consumer(world.context(nothing, concurrency=10, batch=100))):
        await until(lambda: _settled(world) == 500)
    assert world.calls.count("transport.settle") < 100


async def test_a_message_that_fails_three_times_is_buried_once() -> None:
    world = World()

    async def fails(body: Any) -> None:
        raise ConnectionError("down")

    (message,) = await _send(world, 1)
    async with running(Consumer(world.context(fails, Policy(attempts=3, backoff=immediate())))):
        await until(lambda: world.seen(MessageBuried))
    (letter,) = await _letters(world)
    assert (letter.message.id, letter.reason, len(letter.failures)) == (message.id, Reason.ATTEMPTS, 3)
    assert [failure.attempt for failure in letter.failures] == [1, 2, 3]
    assert (await _depth(world)).total == 0


async def test_a_retry_waits_for_its_time() -> None:
    world, tries = World(), 0

    async def fails_once(body: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionError("down")

    await _send(world, 1)
    async with running(Consumer(world.context(fails_once, Policy(backoff=constant("15s"))))):
        await until(lambda: tries == 1)
        await world.clock.advance(14.9)
        assert tries == 1
        await world.clock.advance(0.2)
        await until(lambda: tries == 2)


@pytest.mark.parametrize("concurrency", [1, 3, 8])
async def test_no_more_run_at_once_than_are_allowed(concurrency: int) -> None:
    world, gate = World(), Gate()
    await _send(world, 50)
    async with running(Consumer(world.context(gate.handler, concurrency=concurrency, batch=10))):
        await until(lambda: len(gate.inside) == concurrency)
        await world.clock.advance(1)
        assert gate.most == concurrency
        gate.open.set()
        await until(lambda: _settled(world) == 50)
    assert gate.most == concurrency


async def test_it_never_holds_more_than_its_limit() -> None:
    """Back-pressure: while nothing gets done, nothing more is taken from those who could."""
    world, gate = World(), Gate()
    await _send(world, 1000)
    async with running(Consumer(world.context(gate.handler, concurrency=4, batch=10))):
        await until(lambda: len(gate.inside) == 4)
        await world.clock.advance(5)
        leased = (await _depth(world)).leased
        assert 10 <= leased <= 20
        gate.open.set()
        await until(lambda: _settled(world) == 1000)


async def test_stopping_takes_nothing_new_lets_what_runs_finish_and_gives_back_the_rest_untouched() -> None:
    world, gate = World(), Gate()
    await _send(world, 30)
    consumer = Consumer(world.context(gate.handler, concurrency=2, batch=10))
    task = asyncio.create_task(consumer.run(timedelta(seconds=SOON)))
    await until(lambda: len(gate.inside) == 2)
    running_now = set(gate.inside)
    consumer.stop()
    await until(lambda: _settled(world) == consumer.released > 0)
    assert not task.done()
    gate.open.set()
    await asyncio.wait_for(task, SOON)
    assert set(gate.handled) == running_now
    assert await _depth(world) == Depth(28, 0, 0)
    left = await world.queue.receive("orders", 100)
    assert {(one.message.attempt, one.redelivered, one.failures) for one in left} == {(1, False, ())}


async def test_what_is_not_done_within_the_grace_is_cancelled_and_given_back() -> None:
    world, gate = World(), Gate()
    await _send(world, 3)
    consumer = Consumer(world.context(gate.handler, concurrency=2, batch=10))
    async with running(consumer, grace=timedelta()):
        await until(lambda: len(gate.inside) == 2)
    assert gate.handled == []
    assert await _depth(world) == Depth(3, 0, 0)
    assert {one.message.attempt for one in await world.queue.receive("orders", 10)} == {1}
    assert consumer.released == 3


async def test_stopping_while_idle_is_at_once() -> None:
    consumer = Consumer(World().context(nothing))
    async with asyncio.timeout(SOON), running(consumer, grace=timedelta(hours=1)):
        await asyncio.sleep(0)


async def test_cancelling_it_while_idle_does_not_wait_for_the_grace() -> None:
    task = asyncio.create_task(Consumer(World().context(nothing)).run(timedelta(hours=1)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, SOON)


async def test_cancelling_it_lets_what_runs_finish_within_the_grace_too() -> None:
    world, gate = World(), Gate()
    await _send(world, 1)
    task = asyncio.create_task(Consumer(world.context(gate.handler)).run(timedelta(seconds=SOON)))
    await until(lambda: gate.inside)
    task.cancel()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, SOON)
    assert (await _depth(world)).total == 0


async def test_leases_of_what_is_held_are_renewed() -> None:
    world, gate = World(lease=timedelta(seconds=60)), Gate()
    await _send(world, 5)
    async with running(Consumer(world.context(gate.handler, concurrency=1, batch=10))):
        await until(lambda: gate.inside)
        await world.clock.advance(600)
        assert (await _depth(world)).leased == 5
        assert world.calls.count("transport.extend") >= 29
        gate.open.set()
        await until(lambda: _settled(world) == 5)
    assert len(gate.handled) == 5
    assert world.seen(LeaseLost) == []


async def test_a_lease_that_ended_by_its_own_settlement_is_not_lost() -> None:
    """The broker has settled it, and the answer is on its way: a renewal that comes between finds no lease."""
    world = World(lease=timedelta(seconds=60))
    await _send(world, 1)
    world.calls.break_down("transport.settle", TransportUnavailable("queue"))
    async with running(Consumer(world.context(nothing))):
        await until(lambda: world.calls.count("transport.settle"))
        settlements = next(args[0] for name, args, _ in world.calls.arguments if name == "transport.settle")
        await world.queue.settle(settlements)
        renewals = world.calls.count("transport.extend")
        await world.clock.advance(50)
        assert world.calls.count("transport.extend") > renewals
        assert world.seen(LeaseLost) == []
        world.calls.mend("transport.settle")
        await world.clock.advance(20)


async def test_a_lease_that_was_lost_is_reported_once() -> None:
    world, gate = World(lease=timedelta(seconds=60)), Gate()
    (message,) = await _send(world, 1)
    world.calls.break_down("transport.extend", TransportUnavailable("queue"))
    async with running(Consumer(world.context(gate.handler, concurrency=1))):
        await until(lambda: gate.inside)
        await world.clock.advance(70)  # it lapses, and is received anew
        world.calls.mend("transport.extend")
        await world.clock.advance(100)
        assert [fact.messages for fact in world.seen(LeaseLost)] == [(message.id,)]
        gate.open.set()
        await until(lambda: _settled(world) == 2)
    assert (await _depth(world)).total == 0


async def test_a_transport_that_is_away_at_receive_is_asked_again_less_and_less_often() -> None:
    world = World()
    world.calls.break_down("transport.receive", TransportUnavailable("queue", "refused"))
    async with running(Consumer(world.context(nothing))):
        await world.clock.advance(60)
        asked = world.calls.count("transport.receive")
        assert 8 <= asked <= 16
        pauses = [fact.pause.total_seconds() for fact in world.seen(BackendDown)]
        assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
        assert max(pauses) == 10.0
        world.calls.mend("transport.receive")
        await _send(world, 1)
        await world.clock.advance(10)
        await until(lambda: _settled(world) == 1)
    assert [fact.backend for fact in world.seen(BackendUp)] == ["queue"]


async def test_a_transport_that_is_away_at_settle_keeps_us_from_taking_more_and_nothing_is_lost() -> None:
    world, gate = World(), Gate()
    gate.open.set()
    await _send(world, 100)
    world.calls.break_down("transport.settle", TransportUnavailable("queue"))
    async with running(Consumer(world.context(gate.handler, concurrency=2, batch=5))):
        await world.clock.advance(30)
        assert (await _depth(world)).leased <= 10
        assert (await _depth(world)).total == 100
        world.calls.mend("transport.settle")
        await world.clock.advance(20)
        await until(lambda: _settled(world) == 100)
    assert sorted(set(gate.handled)) == sorted(gate.handled)
    assert (await _depth(world)).total == 0


async def test_after_one_hiccup_of_the_transport_it_still_drains_cleanly() -> None:
    world, gate = World(), Gate()
    await _send(world, 1)
    gate.open.set()
    consumer = Consumer(world.context(gate.handler))
    async with running(consumer):
        world.calls.fail("transport.settle", TransportUnavailable("queue"))
        await until(lambda: gate.handled)
        await world.clock.advance(1)
        await until(lambda: _settled(world) == 1)
        gate.open.clear()
        await _send(world, 1)
        await until(lambda: gate.inside)
        consumer.stop()
        gate.open.set()
    assert (await _depth(world)).total == 0


async def test_stopping_does_not_wait_for_a_transport_that_is_away() -> None:
    world, gate = World(), Gate()
    await _send(world, 1)
    gate.open.set()
    world.calls.break_down("transport.settle", TransportUnavailable("queue"))
    async with running(Consumer(world.context(gate.handler))):
        await until(lambda: gate.handled)
        await until(lambda: world.seen(BackendDown))
    assert (await _depth(world)).leased == 1


async def test_while_the_store_is_down_failures_are_given_back_slower_each_time_and_then_recorded() -> None:
    world, tries = World(), 0

    async def fails(body: Any) -> None:
        nonlocal tries
        tries += 1
        raise ValueError("never")

    (message,) = await _send(world, 1)
    world.calls.break_down("letters.record", StoreUnavailable("letters", "disk is full"))
    async with running(Consumer(world.context(fails))):
        await world.clock.advance(100)
        pauses = [fact.pause.total_seconds() for fact in world.seen(BackendDown)]
        assert pauses[:5] == [1, 2, 4, 8, 10]
        assert max(pauses) == 10
        assert tries < 20
        assert await _letters(world) == []
        world.calls.mend("letters.record")
        await world.clock.advance(30)
        await until(lambda: world.seen(MessageBuried))
    (letter,) = await _letters(world)
    assert (letter.message.id, letter.reason) == (message.id, Reason.PERMANENT)
    assert {failure.attempt for failure in letter.failures} == {1}


async def test_what_may_not_be_attempted_is_buried_without_an_attempt() -> None:
    world, gate = World(), Gate()
    gate.open.set()
    too_large, expired, crashed = (
        make_message(body=b'"' + b"x" * 1000 + b'"'),
        make_message(expires_at=world.clock.now()),
        make_message(attempt=4),
    )
    await world.queue.send([too_large, expired, crashed])
    async with running(Consumer(world.context(gate.handler, Policy(attempts=3), body_limit=1000))):
        await until(lambda: len(world.seen(MessageBuried)) == 3)
    assert gate.handled == []
    found = {letter.message.id: (letter.reason, letter.last.type) for letter in await _letters(world)}
    assert found == {
        too_large.id: (Reason.TOO_LARGE, "redrive.TooLarge"),
        expired.id: (Reason.EXPIRED, "redrive.Expired"),
        crashed.id: (Reason.CRASHED, "redrive.Crashed"),
    }
    assert all(letter.state is State.PENDING for letter in await _letters(world))


async def test_a_body_that_does_not_decode_is_buried_at_once_bytes_intact() -> None:
    world = World()

    async def handler(body: dict[str, int]) -> None: ...

    (message,) = await _send(world, 1, body=b"\xff\x00not json")
    async with running(Consumer(world.context(handler))):
        await until(lambda: world.seen(MessageBuried))
    (letter,) = await _letters(world)
    assert (letter.reason, letter.message.body) == (Reason.UNDECODABLE, message.body)


async def test_a_backoff_function_that_raises_costs_no_worker() -> None:
    world = World()

    def broken(attempt: int) -> timedelta:
        raise ZeroDivisionError

    async def fails(body: Any) -> None:
        raise ConnectionError

    await _send(world, 2)
    async with running(Consumer(world.context(fails, Policy(backoff=custom(broken))))):
        await until(lambda: len(world.seen(MessageBuried)) == 2)
    assert len(await _letters(world)) == 2


async def test_an_error_of_our_own_is_not_hidden_and_its_message_comes_back() -> None:
    """A bug in a policy's or a store's code: the consumer ends with it, at once, and keeps what it held."""
    world = World()
    await _send(world, 3)
    world.calls.break_down("letters.record", ZeroDivisionError("a bug"))

    async def fails(body: Any) -> None:
        raise ValueError

    task = asyncio.create_task(Consumer(world.context(fails, Policy(backoff=never()))).run(timedelta(hours=1)))
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(task, SOON)
    assert (await _depth(world)).total == 3


async def test_a_bug_while_deciding_is_a_letter_of_its_message_and_the_next_one_goes_on() -> None:
    world = World()

    class Broken:
        def delay(self, attempt: int, rng: object) -> timedelta:
            raise ZeroDivisionError("a bug")

    async def fails(body: Any, message: Message) -> None:
        raise ConnectionError

    await _send(world, 3)
    async with running(Consumer(world.context(fails, Policy(backoff=Broken()), concurrency=2))):
        await until(lambda: len(world.seen(MessageBuried)) == 3)
    letters = await _letters(world)
    assert {(letter.reason, letter.category) for letter in letters} == {(Reason.UNDECODABLE, Category.VALIDATION)}
    assert all("decide" in letter.last.message and "ZeroDivisionError" in letter.last.message for letter in letters)


async def test_the_second_time_a_worker_dies_with_a_message_it_counts_as_an_attempt() -> None:
    """The lease ran out under a worker that is gone: the next one sees a higher attempt, and in the end buries it."""
    world, gate = World(), Gate()
    gate.open.set()
    (message,) = await _send(world, 1)
    for attempt in (1, 2):
        (delivery,) = await world.queue.receive("orders", 1)
        assert delivery.message.attempt == attempt
        await world.clock.advance(61)
    async with running(Consumer(world.context(gate.handler, Policy(attempts=2)))):
        await until(lambda: world.seen(MessageBuried))
    assert gate.handled == []
    (letter,) = await _letters(world)
    assert (letter.message.id, letter.reason) == (message.id, Reason.CRASHED)
    assert "2 times" in letter.last.message


async def test_a_transport_that_goes_away_while_we_drain_does_not_keep_us() -> None:
    world, gate = World(), Gate()
    await _send(world, 2)
    consumer = Consumer(world.context(gate.handler, concurrency=2))
    task = asyncio.create_task(consumer.run(timedelta(seconds=SOON)))
    await until(lambda: len(gate.inside) == 2)
    asked, away = asyncio.Event(), asyncio.Event()

    async def settle_slowly(settlements: Any) -> Any:
        asked.set()
        await away.wait()
        raise TransportUnavailable("queue")

    world.queue.settle = settle_slowly  # type: ignore[method-assign]
    consumer.stop()
    gate.open.set()
    await asked.wait()
    await world.clock.advance(0.01)  # by now it waits for the settlement only
    away.set()
    await asyncio.wait_for(task, SOON)
    assert (await _depth(world)).leased == 2
