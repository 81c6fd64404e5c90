"""A clock that goes backwards: nothing is stuck, nothing is lost, nothing crashes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from redrive import Again, Policy, Redrive, constant, immediate
from redrive.clock import SystemClock
from redrive.model import Done, State
from redrive.testing.builders import make_message
from redrive.testing.clock import START, ManualClock
from redrive.testing.waiting import until
from redrive.transports.base import Settlement
from redrive.transports.sqlite import SqliteTransport
from tests.trouble.helpers import letters, make_app, until_empty, url_in, working

YEAR = timedelta(days=365).total_seconds()
LEASE = timedelta(seconds=30)


async def test_a_worker_goes_on_when_its_clock_is_set_back_under_it(tmp_path: Path) -> None:
    clock = ManualClock()
    app = make_app(tmp_path, clock=clock)
    done: list[int] = []

    @app.handler("orders", policy=Policy(attempts=2, backoff=constant("5s"), again=Again(1, constant("5s"))))
    async def handle(body: int) -> None:
        if body < 0:
            raise ConnectionError("always")
        done.append(body)

    async def settled() -> None:
        await until(lambda: len(done) == 30 and retried[-1:] == [State.EXHAUSTED], what="all done, one exhausted")

    retried: list[State] = []
    async with app, working(app, upkeep=True):
        await app.send("orders", -1)
        for round_number in range(3):
            for number in range(10):
                await app.send("orders", 10 * round_number + number)
            await clock.eventually(_drained(app, done, 10 * (round_number + 1)))
            clock.set_back(YEAR)
        await clock.eventually(_exhausted(app, retried), timeout=60)
        await clock.eventually(settled())
    assert sorted(done) == list(range(30))


async def test_what_was_sent_under_a_clock_that_was_ahead_is_received_at_once(tmp_path: Path) -> None:
    ahead, now = ManualClock(START + timedelta(days=365)), ManualClock(START)
    first = SqliteTransport(url_in(tmp_path), clock=ahead, lease=LEASE)
    message = make_message(id="early", enqueued_at=ahead.now())
    await ahead.advance(0.001)  # time goes on between making a message and sending it
    await first.send([message])
    await first.aclose()
    second = SqliteTransport(url_in(tmp_path), clock=now, lease=LEASE)
    [delivery] = await now.eventually(second.receive("orders", 1))
    assert delivery.message.id == "early"
    await second.aclose()


async def test_a_lease_taken_under_a_clock_that_was_ahead_ends_within_the_longest_lease(tmp_path: Path) -> None:
    ahead, now = ManualClock(START + timedelta(days=365)), ManualClock(START)
    first = SqliteTransport(url_in(tmp_path), clock=ahead, lease=LEASE)
    await first.send([make_message(id="held")])
    await ahead.eventually(first.receive("orders", 1))
    await first.aclose()
    second = SqliteTransport(url_in(tmp_path), clock=now, lease=LEASE)
    await second.send([make_message(id="other")])
    [other] = await now.eventually(second.receive("orders", 10))
    await second.settle([Settlement(other, Done())])
    await now.advance(timedelta(hours=1.1).total_seconds())
    [held] = await now.eventually(second.receive("orders", 1))
    assert (held.message.id, held.redelivered) == ("held", True)
    await second.aclose()


async def test_a_process_that_starts_after_the_clock_was_set_back_finishes_the_work(tmp_path: Path) -> None:
    """The real clock, a year behind the one that filled the queue."""
    ahead = ManualClock(SystemClock().now() + timedelta(days=365))
    before = make_app(tmp_path, clock=ahead)
    before.declare("orders")
    async with before:
        for number in range(20):
            await before.send("orders", number)
            await ahead.advance(0.0001)
    app = make_app(tmp_path)
    done: list[int] = []

    @app.handler("orders", policy=Policy(attempts=1, backoff=immediate()))
    async def handle(body: int) -> None:
        done.append(body)

    async with app, working(app):
        await until_empty(app)
    assert done == list(range(20))


async def _drained(app: Redrive, done: list[int], number: int) -> None:
    await until(lambda: len(done) >= number, what=f"{number} are done")


async def _exhausted(app: Redrive, states: list[State]) -> None:
    async def is_exhausted() -> bool:
        found = await letters(app)
        states.extend(one.state for one in found)
        return [one.state for one in found] == [State.EXHAUSTED]

    await until(is_exhausted, timeout=60, what="its automatic retry was made, and failed")
