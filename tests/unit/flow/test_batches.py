"""Batch handlers: what a batch is made of, what becomes of each message in it, and how it ends."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Failed, Message, Permanent, Policy, Redrive, constant, immediate
from redrive.errors import NotNow, StoreUnavailable
from redrive.flow.batches import BatchConsumer
from redrive.forensics.query import Query
from redrive.model import Letter, Reason
from redrive.telemetry.events import BackendDown, BatchHandled, BatchSettled, MessageRetried
from redrive.testing.builders import make_message
from redrive.testing.waiting import until as until_so
from redrive.transports.base import Depth
from tests.unit.support import SOON, World, running, until


class Shop:
    """A batch handler that writes down its calls, and fails as it is told."""

    def __init__(self, *, poison: set[str] = frozenset(), failing: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.poison = poison  # a batch with one of these fails as a whole
        self.failing = failing  # these fail by name
        self.calls: list[list[str]] = []
        self.attempts: list[tuple[str, int]] = []
        self.done: list[str] = []

    async def handler(self, bodies: list[Any], messages: list[Message]) -> None:
        names = [message.id for message in messages]
        self.calls.append(names)
        self.attempts += [(message.id, message.attempt) for message in messages]
        if self.poison & set(names):
            raise ConnectionError("a poisoned batch")
        failed = {place: ConnectionError(f"not {name}") for place, name in enumerate(names) if name in self.failing}
        self.done += [name for name in names if name not in self.failing]
        raise Failed(failed)


def _messages(number: int, **changes: Any) -> list[Message]:
    return [make_message(id=f"m{n}", **changes) for n in range(number)]


async def _depth(world: World) -> Depth:
    return (await world.queue.depths()).get("orders", Depth(0, 0, 0))


async def _is_leased(world: World, number: int) -> bool:
    return (await _depth(world)).leased == number


async def _letters(world: World) -> list[Letter]:
    return list((await world.letters.letters.search(Query(), limit=1000)).letters)


def _done(world: World) -> int:
    return sum(event.done for event in world.seen(BatchSettled))


async def test_a_full_batch_does_not_wait_and_the_rest_waits_for_more_until_its_time_is_over() -> None:
    world, shop = World(), Shop()
    await world.queue.send(_messages(7))
    async with running(BatchConsumer(world.context(shop.handler, size=5))):
        await until(lambda: len(shop.calls) == 1)
        await world.clock.advance(0.9)
        assert [len(call) for call in shop.calls] == [5]
        await world.queue.send([make_message(id="late")])
        await world.clock.advance(0.2)
        await until(lambda: len(shop.calls) == 2)
        await until(lambda: _done(world) == 8)
    assert [len(call) for call in shop.calls] == [5, 3]
    assert await _depth(world) == Depth(0, 0, 0)


async def test_those_that_fail_by_name_are_retried_alone_and_the_rest_is_done() -> None:
    world, shop = World(), Shop(failing={"m3", "m17", "m40"})
    messages = _messages(50)
    await world.queue.send(messages)
    policy = Policy(attempts=3, backoff=constant("10s"))
    async with running(BatchConsumer(world.context(shop.handler, policy, size=50, batch=50))):
        await until(lambda: _done(world) == 47)
        assert await _depth(world) == Depth(0, 3, 0)
        await world.clock.advance(10)
        await until(lambda: len(shop.calls) == 4)
        shop.failing.discard("m17")
        await world.clock.advance(10)
        await until(lambda: len(shop.calls) == 7)
        await until(lambda: _done(world) == 48)
    assert [len(call) for call in shop.calls] == [50, 1, 1, 1, 1, 1, 1]
    letters = {letter.message.id: letter for letter in await _letters(world)}
    assert letters.keys() == {"m3", "m40"}
    assert [failure.attempt for failure in letters["m3"].failures] == [1, 2, 3]
    assert {failure.message for failure in letters["m3"].failures} == {"not m3"}
    assert letters["m3"].reason is Reason.ATTEMPTS


@pytest.mark.parametrize(("how", "calls"), [("halves", [16, 8, 4, 2, 1, 1, 2, 4, 8]), ("each", [16, *[1] * 16])])
async def test_one_poisoned_message_fails_alone(how: str, calls: list[int]) -> None:
    world, shop = World(), Shop(poison={"m1"})
    await world.queue.send(_messages(16))
    policy = Policy(attempts=1, batch_failure=how)
    async with running(BatchConsumer(world.context(shop.handler, policy, size=16, batch=16))):
        await until(lambda: _done(world) == 15)
    assert [len(call) for call in shop.calls] == calls
    [letter] = await _letters(world)
    assert letter.message.id == "m1"
    assert [failure.attempt for failure in letter.failures] == [1], "each try in a smaller batch counted"
    assert sorted(shop.done) == sorted(f"m{n}" for n in range(16) if n != 1)


async def test_while_nothing_works_a_few_fail_and_the_rest_is_given_back_uncounted() -> None:
    world, shop = World(), Shop(poison={f"m{n}" for n in range(64)})
    await world.queue.send(_messages(64))
    policy = Policy(attempts=5, backoff=constant("10s"))
    async with running(BatchConsumer(world.context(shop.handler, policy, size=64, batch=64))):
        await until(lambda: sum(event.released for event in world.seen(BatchSettled)) == 61)
        assert len(shop.calls) < 12
        assert len(world.seen(MessageRetried)) == 3
        shop.poison.clear()
        await world.clock.advance(11)
        await until(lambda: _done(world) == 64)
    assert sorted(attempt for name, attempt in shop.attempts if name in shop.done)[-4:] == [1, 2, 2, 2]
    assert await _letters(world) == []


async def test_what_cannot_be_tried_again_is_buried_one_by_one_even_if_nothing_works() -> None:
    world = World()

    async def store(bodies: list[Any]) -> None:
        raise Permanent("no such table")

    await world.queue.send(_messages(8))
    async with running(BatchConsumer(world.context(store, size=8))):
        await until(lambda: sum(event.buried for event in world.seen(BatchSettled)) == 8)
    assert {letter.reason for letter in await _letters(world)} == {Reason.PERMANENT}


async def test_what_nobody_can_read_expired_or_is_too_large_poisons_no_batch() -> None:
    world, got = World(), list[Any]()

    async def store(orders: list[dict[str, int]]) -> None:
        got.extend(orders)

    now = world.clock.now()
    await world.queue.send(
        [
            make_message(id="good", body=b'{"n": 1}'),
            make_message(id="rubbish", body=b"{"),
            make_message(id="late", expires_at=now + timedelta(microseconds=1)),
            make_message(id="huge", body=b'{"n": 2}' + b" " * 2000),
            make_message(id="good too", body=b'{"n": 3}'),
        ]
    )
    await world.clock.advance(1)
    async with running(BatchConsumer(world.context(store, size=5))):
        await until(lambda: _done(world) == 2)
    assert got == [{"n": 1}, {"n": 3}]
    assert {letter.message.id: letter.reason for letter in await _letters(world)} == {
        "rubbish": Reason.UNDECODABLE,
        "late": Reason.EXPIRED,
        "huge": Reason.TOO_LARGE,
    }


async def test_what_was_begun_by_a_worker_that_died_shares_no_batch() -> None:
    world, shop = World(lease=timedelta(seconds=5)), Shop()
    await world.queue.send(_messages(3))
    assert len(await world.queue.receive("orders", 3)) == 3
    await world.clock.advance(6)
    await world.queue.send([make_message(id="new"), make_message(id="newer")])
    async with running(BatchConsumer(world.context(shop.handler, size=5))):
        await world.clock.advance(1)
        await until(lambda: _done(world) == 5)
    assert sorted(map(len, shop.calls)) == [1, 1, 1, 2]
    assert ["new", "newer"] in shop.calls


async def test_a_crash_of_a_batch_buries_nobody_and_only_what_crashes_alone_is_buried() -> None:
    """However few attempts the policy allows: what only shared the batch gets its own attempt."""
    world, shop = World(lease=timedelta(seconds=5)), Shop()
    await world.queue.send(_messages(3))
    await world.queue.receive("orders", 3)
    await world.clock.advance(6)
    async with running(BatchConsumer(world.context(shop.handler, Policy(attempts=1), size=5))):
        await until(lambda: _done(world) == 3)
    assert [len(call) for call in shop.calls] == [1, 1, 1]
    await world.queue.send([make_message(id="deadly")])
    for _ in range(2):
        await world.queue.receive("orders", 1)
        await world.clock.advance(6)
    async with running(BatchConsumer(world.context(shop.handler, Policy(attempts=1), size=5))):
        await until(lambda: sum(event.buried for event in world.seen(BatchSettled)) == 1)
    assert [(letter.message.id, letter.reason) for letter in await _letters(world)] == [("deadly", Reason.CRASHED)]
    assert "deadly" not in shop.done


async def test_several_batches_at_a_time() -> None:
    world, inside, let_go = World(), list[int](), asyncio.Event()

    async def store(bodies: list[Any]) -> None:
        inside.append(len(bodies))
        await let_go.wait()

    await world.queue.send(_messages(25))
    async with running(BatchConsumer(world.context(store, size=5, concurrency=3, batch=10))):
        await until(lambda: len(inside) == 3)
        assert inside == [5, 5, 5]
        let_go.set()
        await until(lambda: _done(world) == 25)


async def test_a_batch_in_hand_may_finish_and_a_partly_gathered_one_is_given_back() -> None:
    world, entered, let_go = World(), asyncio.Event(), asyncio.Event()

    async def store(bodies: list[Any]) -> None:
        entered.set()
        await let_go.wait()

    await world.queue.send(_messages(5))
    consumer = BatchConsumer(world.context(store, size=5, concurrency=2))
    task = asyncio.create_task(consumer.run(timedelta(seconds=SOON)))
    await asyncio.wait_for(entered.wait(), SOON)
    await world.queue.send([make_message(id="early")])
    await until_so(lambda: _is_leased(world, 6), what="the next batch is begun to be gathered")
    consumer.stop()
    await until(lambda: consumer.released == 1)
    let_go.set()
    await asyncio.wait_for(task, SOON)
    assert _done(world) == 5
    [early] = await world.queue.receive("orders", 5)
    assert (early.message.id, early.message.attempt) == ("early", 1)


async def test_a_batch_that_outlives_the_grace_is_given_back_as_it_was() -> None:
    world, entered = World(), asyncio.Event()

    async def store(bodies: list[Any]) -> None:
        entered.set()
        await asyncio.Event().wait()

    await world.queue.send(_messages(5))
    consumer = BatchConsumer(world.context(store, size=5))
    task = asyncio.create_task(consumer.run(timedelta()))
    await asyncio.wait_for(entered.wait(), SOON)
    consumer.stop()
    await asyncio.wait_for(task, SOON)
    again = await world.queue.receive("orders", 10)
    assert [(delivery.message.attempt, delivery.redelivered) for delivery in again] == [(1, False)] * 5


async def test_leases_are_renewed_while_a_batch_is_gathered_and_handled() -> None:
    world, let_go = World(lease=timedelta(seconds=6)), asyncio.Event()

    async def store(bodies: list[Any]) -> None:
        await let_go.wait()

    await world.queue.send(_messages(2))
    context = world.context(store, size=5, within=timedelta(seconds=20))
    async with running(BatchConsumer(context)):
        await world.clock.advance(40)
        assert await _depth(world) == Depth(0, 0, 2)
        let_go.set()
        await until(lambda: _done(world) == 2)


async def test_a_batch_that_cannot_begin_now_is_given_back_and_nothing_is_counted() -> None:
    world, seen = World(), list[int]()

    async def store(bodies: list[Any], messages: list[Message]) -> None:
        seen.extend(message.attempt for message in messages)
        if len(seen) < 8:
            raise NotNow("warming up", pause=timedelta(seconds=1))

    await world.queue.send(_messages(4))
    async with running(BatchConsumer(world.context(store, size=4))):
        await until(lambda: len(seen) == 4)
        await world.clock.advance(2)
        await until(lambda: _done(world) == 4)
    assert seen == [1] * 8


async def test_a_call_that_hangs_is_ended_and_only_what_hangs_alone_has_failed() -> None:
    world, calls = World(), list[int]()

    async def store(bodies: list[bytes]) -> None:
        calls.append(len(bodies))
        if b"stuck" in bodies:
            await asyncio.Event().wait()

    await world.queue.send([make_message(id=f"{n}", body=b"stuck" if n == 2 else b"fine") for n in range(4)])
    context = world.context(store, Policy(attempts=1), size=4, timeout=timedelta(milliseconds=20))
    async with running(BatchConsumer(context)):
        await until(lambda: _done(world) == 3)
    [letter] = await _letters(world)
    assert (letter.message.id, letter.last.type) == ("2", "redrive.flow.attempt.AttemptTimeout")
    assert calls == [4, 2, 2, 1, 1]


async def test_a_handler_that_exits_has_failed_and_the_worker_lives() -> None:
    world, calls = World(), list[int]()

    async def store(bodies: list[bytes]) -> None:
        calls.append(len(bodies))
        if b"exit" in bodies:
            raise SystemExit(1)

    await world.queue.send([make_message(id=f"{n}", body=b"exit" if n == 0 else b"fine") for n in range(2)])
    async with running(BatchConsumer(world.context(store, Policy(attempts=1), size=2))):
        await until(lambda: _done(world) == 1)
    [letter] = await _letters(world)
    assert letter.last.type == "SystemExit"


INTERRUPTED = """
import sys
from redrive import Redrive

app = Redrive(transport=sys.argv[1])


@app.handler("orders", batch=3)
async def store(bodies: list[bytes]) -> None:
    raise KeyboardInterrupt


app.run()
"""


async def test_an_interrupt_ends_the_worker_and_what_it_had_is_still_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    async with Redrive(transport=url) as app:
        await app.send_messages([app.message("orders", b"x") for _ in range(3)])
        command = [sys.executable, "-c", INTERRUPTED, url]
        worker = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, said = await worker.communicate()
        assert b"KeyboardInterrupt" in said
        assert (await app.transport().depths())["orders"].total == 3


async def test_while_the_store_is_down_what_failed_is_given_back_and_the_rest_is_done() -> None:
    world, shop = World(), Shop(failing={"m1"})
    world.calls.break_down("letters.record", StoreUnavailable("letters", "disk is full"))
    await world.queue.send(_messages(4))
    async with running(BatchConsumer(world.context(shop.handler, Policy(attempts=1), size=4))):
        await until(lambda: bool(world.seen(BackendDown)))
        assert _done(world) == 3
        world.calls.mend("letters.record")
        await world.clock.advance(120)
        await until(lambda: sum(event.buried for event in world.seen(BatchSettled)) == 1)
    assert [name for name, _ in shop.attempts].count("m1") == 1, "it was attempted again to be written"


async def test_events_tell_of_each_call_and_of_each_message() -> None:
    world, shop = World(), Shop(failing={"m0"})
    await world.queue.send(_messages(4))
    async with running(BatchConsumer(world.context(shop.handler, Policy(backoff=immediate(), attempts=2), size=4))):
        await until(lambda: sum(event.buried for event in world.seen(BatchSettled)) == 1)
    assert [event.messages for event in world.seen(BatchHandled)] == [4, 1]
    assert all(event.seconds > 0 for event in world.seen(BatchHandled))
    assert [event.message for event in world.seen(MessageRetried)] == ["m0"]
