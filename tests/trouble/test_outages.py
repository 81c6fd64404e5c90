"""A backend that goes away while the others work: messages are kept, we go slower, and it all goes on after."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Again, Policy, constant
from redrive.clock import SystemClock
from redrive.config.settings import Retention, Upkeep
from redrive.flow.lineage import sent_back
from redrive.flow.signing import use_key
from redrive.forensics.query import Query
from redrive.model import State
from redrive.proof import ring
from redrive.stores.sqlite import SqliteStore
from redrive.telemetry.events import BackendDown, BackendUp, BatchSettled
from redrive.testing.builders import make_letter
from redrive.testing.clock import ManualClock
from redrive.testing.faults import store_outage, transport_outage
from redrive.testing.waiting import until
from redrive.transports.sqlite import SqliteTransport
from tests.trouble.helpers import Told, depth, letters, make_app, until_empty, until_letters, url_in, working

LEASE = timedelta(seconds=30)


async def test_a_store_that_is_down_while_the_transport_works(tmp_path: Path) -> None:
    """Failures are given back, with pauses that grow, and not attempted again; successes go on."""
    clock = ManualClock()
    outage, store = store_outage(SqliteStore(url_in(tmp_path)))
    app = make_app(tmp_path, clock=clock, store=store, batch=10)
    told, handled = Told(app), Counter[int]()

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: int) -> None:
        handled[body] += 1
        if body >= 5:
            raise ValueError("to be buried")

    async with app, working(app):
        await clock.eventually(until(lambda: bool(ring().signs), what="it has read its keys"))
        outage.down = True
        await app.send_messages([app.message("orders", number) for number in range(10)])
        await clock.eventually(until(lambda: len(told.of(BackendDown)) >= 4, what="four tries failed"))
        assert await depth(app) == 5, "successes are done, failures are kept"
        pauses = [event.pause for event in told.of(BackendDown)][:4]
        assert pauses == sorted(pauses)
        assert pauses[0] < pauses[-1], "the pauses grow"
        outage.down = False
        await clock.eventually(until_empty(app))
        buried = await letters(app)
    assert sorted(int(one.message.body) for one in buried) == [5, 6, 7, 8, 9]
    assert {one.last.attempt for one in buried} == {1}, "the attempt that could not be written"
    assert handled == Counter(range(10)), "nothing is attempted again for the sake of writing it"
    assert sum(event.released for event in told.of(BatchSettled)) >= 15


@pytest.mark.parametrize("key", ["", "a key of the settings"], ids=["without", "with"])
async def test_a_store_that_is_away_from_the_start_holds_up_only_what_came_back(tmp_path: Path, key: str) -> None:
    """It could not tell what it sent back itself from what somebody forged, unless its settings have a key."""
    outage, store = store_outage(SqliteStore(url_in(tmp_path)))
    app = make_app(tmp_path, store=store)
    handled: list[int] = []

    @app.handler("orders")
    async def handle(body: int) -> None:
        handled.append(body)

    async with app:
        outage.down = True
        use_key(key)
        letter = make_letter(app.message("orders", 1))
        await app.send_messages([sent_back(letter, now=app.clock.now()), app.message("orders", 2)])
        async with working(app):
            await until(lambda: 2 in handled, what="what never needed the store is handled")
            assert 1 not in handled or key
            outage.down = False
            await until(lambda: sorted(handled) == [1, 2], what="the store answers, and so does the other")
            await until_empty(app)


async def test_a_success_that_would_resolve_a_letter_waits_for_the_store(tmp_path: Path) -> None:
    outage, store = store_outage(SqliteStore(url_in(tmp_path)), only=["move"])
    app = make_app(tmp_path, store=store)
    handled: list[int] = []

    @app.handler("orders", policy=Policy(attempts=1, again=Again(1, constant("1ms"))))
    async def handle(body: bytes) -> None:
        handled.append(1)
        if len(handled) == 1:
            raise ConnectionError("once")
        outage.down = True

    async with app, working(app, upkeep=True):
        await app.send("orders", b"")
        await until(lambda: outage.refused["move"] > 0, what="it could not be resolved")
        outage.down = False

        async def is_resolved() -> bool:
            return await app.store.letters.count(Query(states=(State.RESOLVED,))) == 1

        await until(is_resolved, what="its letter is resolved")
        await until_empty(app)
    assert len(handled) == 2, "what has succeeded is not done again"


async def test_a_transport_that_is_down_when_we_settle(tmp_path: Path) -> None:
    """What was decided is carried out when it is back: once, and only then is more taken."""
    clock = SystemClock()
    inner = SqliteTransport(url_in(tmp_path), clock=clock, lease=LEASE)
    outage, transport = transport_outage(inner, only=["settle"])
    app = make_app(tmp_path, transport=transport, store=SqliteStore(url_in(tmp_path)), batch=5, concurrency=5)
    told, handled = Told(app), Counter[int]()

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: int) -> None:
        handled[body] += 1
        if body % 2:
            raise ValueError("odd")

    outage.down = True
    async with app, working(app):
        await app.send_messages([app.message("orders", number) for number in range(40)])
        await until(lambda: outage.refused["settle"] >= 3, what="it was tried again and again")
        assert handled.total() <= 10, "nothing more is taken than may be held"
        outage.down = False
        await until_empty(app)
        buried = await letters(app)
    assert handled == Counter(range(40))
    assert sorted(int(one.message.body) for one in buried) == list(range(1, 40, 2))
    assert all(len(one.failures) == 1 for one in buried), "a letter that was written twice is one death"
    assert told.of(BackendDown)
    assert told.of(BackendUp)


async def test_a_worker_that_stops_while_its_transport_is_down_does_not_wait_for_it(tmp_path: Path) -> None:
    inner = SqliteTransport(url_in(tmp_path), clock=SystemClock(), lease=timedelta(seconds=1))
    outage, transport = transport_outage(inner, only=["settle"])
    app = make_app(tmp_path, transport=transport, store=SqliteStore(url_in(tmp_path)), lease=timedelta(seconds=1))
    handled: list[bytes] = []

    @app.handler("orders")
    async def handle(body: bytes) -> None:
        handled.append(body)

    async with app:
        outage.down = True
        async with working(app):
            await app.send("orders", b"kept")
            await until(lambda: outage.refused["settle"] > 0)
        assert await depth(app) == 1
        outage.down = False
        async with working(app):
            await until_empty(app)
    assert handled == [b"kept", b"kept"]


async def test_a_lease_that_could_not_be_renewed_once_does_not_keep_work_from_being_settled_at_the_end(
    tmp_path: Path,
) -> None:
    lease = timedelta(seconds=3)
    inner = SqliteTransport(url_in(tmp_path), clock=SystemClock(), lease=lease)
    outage, transport = transport_outage(inner, only=["extend"])
    app = make_app(tmp_path, transport=transport, store=SqliteStore(url_in(tmp_path)), lease=lease)
    begun, may_end, handled = asyncio.Event(), asyncio.Event(), list[bytes]()

    @app.handler("orders")
    async def handle(body: bytes) -> None:
        begun.set()
        await may_end.wait()
        handled.append(body)

    async with app:
        await app.send("orders", b"one")
        async with working(app):
            await asyncio.wait_for(begun.wait(), 120)
            outage.down = True
            await until(lambda: outage.refused["extend"] == 1, what="a renewal failed")
            outage.down = False
            may_end.set()
            await until(lambda: handled == [b"one"])
        assert await depth(app) == 0, "it was handled and is still queued"


async def test_a_transport_that_is_down_when_we_receive(tmp_path: Path) -> None:
    inner = SqliteTransport(url_in(tmp_path), clock=SystemClock(), lease=LEASE)
    outage, transport = transport_outage(inner, only=["receive"])
    app = make_app(tmp_path, transport=transport, store=SqliteStore(url_in(tmp_path)))
    told, handled = Told(app), list[int]()

    @app.handler("orders")
    async def handle(body: int) -> None:
        handled.append(body)

    async with app:
        outage.down = True
        async with working(app):
            await app.send("orders", 1)
            await until(lambda: len(told.of(BackendDown)) >= 2)
            outage.down = False
            await until_empty(app)
    assert handled == [1]
    pauses = [event.pause for event in told.of(BackendDown)]
    assert pauses == sorted(pauses)


async def test_automatic_retries_wait_for_a_transport_that_is_down(tmp_path: Path) -> None:
    inner = SqliteTransport(url_in(tmp_path), clock=SystemClock(), lease=LEASE)
    outage, transport = transport_outage(inner, only=["send"])
    app = make_app(tmp_path, transport=transport, store=SqliteStore(url_in(tmp_path)))
    handled: list[int] = []

    @app.handler("orders", policy=Policy(attempts=1, again=Again(2, constant("1ms"))))
    async def handle(body: int) -> None:
        handled.append(body)
        if len(handled) == 1:
            raise ConnectionError("once")

    async with app:
        await app.send("orders", 1)
        outage.down = True
        async with working(app, upkeep=True):
            await until(lambda: outage.refused["send"] >= 2, what="sending it back was tried twice")
            outage.down = False
            await until(lambda: len(handled) == 2)
            await until_empty(app)
        [letter] = await letters(app)
    assert (letter.state, letter.retries, letter.resends) == (State.RESOLVED, 1, 1)


async def test_an_archive_that_cannot_be_written_stops_no_automatic_retry(tmp_path: Path) -> None:
    """Pruning fails, each time; everything else of upkeep goes on, and no letter is deleted."""
    upkeep = Upkeep(interval=timedelta(milliseconds=20), prune_every=timedelta(milliseconds=20))
    export = str(tmp_path / "no such directory" / "pruned.jsonl")
    app = make_app(tmp_path, upkeep=upkeep, retention=Retention(max_letters=1, export=export))
    handled: list[int] = []

    @app.handler("orders", policy=Policy(attempts=1, again=Again(1, constant("200ms"))))
    async def handle(body: int) -> None:
        handled.append(body)
        if len(handled) == 1:
            raise ConnectionError("once")

    async with app:
        await app.store.letters.record([make_letter() for _ in range(3)])
        async with working(app, upkeep=True):
            await app.send("orders", 1)
            await until_letters(app, 4)
            await until(lambda: len(handled) == 2, what="the automatic retry was made")
            await until_empty(app)
        assert await app.store.letters.count(Query()) == 4
