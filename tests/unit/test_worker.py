"""A worker process: every handler of an app, upkeep beside it, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Again, Permanent, Policy, Redrive, constant, immediate
from redrive.errors import ConfigError, StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import State
from redrive.telemetry.events import Event, LetterResolved, MessageBuried, WorkerStarted, WorkerStopped
from redrive.upkeep.loop import Upkeep
from redrive.worker import Worker, fast_loop, run_on_fast_loop, work
from tests.unit.support import SOON, until


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Redrive]:
    async with Redrive(transport=f"sqlite:///{tmp_path}/redrive.db") as app:
        yield app


@asynccontextmanager
async def _working(app: Redrive, **options: Any) -> AsyncIterator[list[Event]]:
    facts: list[Event] = []
    app.events.subscribe(facts.append)
    worker = Worker(app, **options)
    task = asyncio.create_task(worker.run())
    try:
        yield facts
    finally:
        worker.stop()
        await asyncio.wait_for(task, SOON)


def _of(facts: list[Event], kind: type[Event]) -> list[Any]:
    return [fact for fact in facts if isinstance(fact, kind)]


def test_an_app_without_handlers_has_nothing_to_run() -> None:
    with pytest.raises(ConfigError, match=r"register one with @app.handler\('orders'\)"):
        Worker(Redrive(transport="memory://", store="memory://"))


async def test_every_handler_gets_its_messages(app: Redrive) -> None:
    seen: list[tuple[str, Any]] = []

    @app.handler("orders")
    async def order(body: dict[str, int]) -> None:
        seen.append(("orders", body))

    @app.handler("emails")
    def email(body: str) -> None:
        seen.append(("emails", body))

    await app.send("orders", {"id": 7})
    await app.send("emails", "hello")
    async with _working(app, upkeep=False) as facts:
        await until(lambda: len(seen) == 2)
    assert sorted(seen) == [("emails", "hello"), ("orders", {"id": 7})]
    assert [fact.sources for fact in _of(facts, WorkerStarted)] == [("orders", "emails")]
    assert [fact.released for fact in _of(facts, WorkerStopped)] == [0]
    assert await app.transport().depths() == {}


async def test_a_message_dies_is_retried_by_upkeep_and_resolved(app: Redrive) -> None:
    tries = 0

    @app.handler("orders", policy=Policy(attempts=1, again=Again(1, immediate())))
    async def order(body: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionError("down")

    await app.send("orders", b"1")
    async with _working(app) as facts:
        await until(lambda: _of(facts, LetterResolved))
    assert tries == 2
    assert await app.store.letters.count(Query(states=(State.RESOLVED,))) == 1


async def test_without_upkeep_letters_wait(app: Redrive) -> None:
    @app.handler("orders", policy=Policy(attempts=1, again=Again(1, immediate())))
    async def order(body: Any) -> None:
        raise ConnectionError("down")

    await app.send("orders", b"1")
    async with _working(app, upkeep=False) as facts:
        await until(lambda: _of(facts, MessageBuried))
    (letter,) = (await app.store.letters.search(Query())).letters
    assert letter.state is State.PENDING


async def test_what_was_not_begun_is_given_back(app: Redrive) -> None:
    began = asyncio.Event()

    @app.handler("orders", concurrency=1)
    async def order(body: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    for _ in range(5):
        await app.send("orders", b"1")
    async with _working(app, upkeep=False, grace=timedelta()) as facts:
        await began.wait()
    (stopped,) = _of(facts, WorkerStopped)
    assert stopped.released == 5
    assert (await app.transport().depths())["orders"].ready == 5


async def test_a_worker_that_is_stopped_before_it_runs_ends_at_once(app: Redrive) -> None:
    @app.handler("orders")
    async def order(body: Any) -> None: ...

    worker = Worker(app)
    worker.stop()
    await asyncio.wait_for(worker.run(), SOON)


async def test_a_bug_in_one_consumer_ends_the_worker_and_is_not_hidden(
    app: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.handler("orders", policy=Policy(backoff=constant("1h")))
    async def order(body: Any) -> None:
        raise Permanent("buried")

    @app.handler("emails")
    async def email(body: Any) -> None: ...

    async def broken(letters: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(app.store.letters, "record", broken)
    await app.send("orders", b"1")
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(Worker(app, grace=timedelta(hours=1)).run(), SOON)
    assert caught.group_contains(ZeroDivisionError)
    assert (await app.transport().depths())["orders"].total == 1


async def test_upkeep_that_cannot_reach_its_store_does_not_end_the_worker(
    app: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = asyncio.Event()

    @app.handler("orders")
    async def order(body: Any) -> None:
        handled.set()

    async def away() -> Any:
        raise StoreUnavailable("letters")

    monkeypatch.setattr(app.store.letters, "tallies", away)
    async with _working(app):
        await app.send("orders", b"1")
        await asyncio.wait_for(handled.wait(), SOON)
    assert isinstance(Upkeep.of(app), Upkeep)


def test_uvloop_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fast_loop() is not None
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert fast_loop() is None


def test_what_runs_on_the_fast_loop_gives_its_answer_and_its_error() -> None:
    async def loop_name() -> str:
        return type(asyncio.get_running_loop()).__module__

    async def fails() -> None:
        raise ConfigError("wrong")

    assert run_on_fast_loop(loop_name()).startswith("uvloop")
    with pytest.raises(ConfigError, match="wrong"):
        run_on_fast_loop(fails())


async def test_the_first_signal_drains_a_worker_and_ends_what_runs_beside_it(app: Redrive) -> None:
    ended = asyncio.Event()

    @app.handler("orders")
    async def order(body: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await app.send("orders", b"1")
    await asyncio.wait_for(work(app, upkeep=False, beside=[beside]), SOON)
    assert ended.is_set()
    assert await app.transport().depths() == {}


PROGRAM = """
    import asyncio, sys
    from datetime import timedelta
    from redrive import Redrive
    app = Redrive(transport=sys.argv[1])

    @app.handler("orders", concurrency=2)
    async def order(body: str) -> None:
        print("began", body, flush=True)
        await asyncio.sleep({seconds})
        print("ended", body, flush=True)

    app.run(grace=timedelta(seconds={grace}))
    print("stopped", flush=True)
"""


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def _child(app: Redrive, tmp_path: Path, seconds: float, grace: float) -> subprocess.Popen[str]:
    await app.send("orders", "1")
    program = textwrap.dedent(PROGRAM.format(seconds=seconds, grace=grace))
    child = _start([sys.executable, "-c", program, f"sqlite:///{tmp_path}/redrive.db"])
    assert child.stdout is not None
    assert await asyncio.to_thread(child.stdout.readline) == "began 1\n"
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_lets_what_runs_finish(app: Redrive, tmp_path: Path, number: signal.Signals) -> None:
    child = await _child(app, tmp_path, seconds=0.3, grace=20)
    child.send_signal(number)
    output, errors = await asyncio.to_thread(child.communicate, None, 20)
    assert (output, child.returncode) == ("ended 1\nstopped\n", 0), errors
    assert await app.transport().depths() == {}


async def test_the_grace_ends_what_does_not_finish_and_gives_it_back(app: Redrive, tmp_path: Path) -> None:
    child = await _child(app, tmp_path, seconds=3600, grace=0.1)
    child.send_signal(signal.SIGINT)
    output, errors = await asyncio.to_thread(child.communicate, None, 20)
    assert (output, child.returncode) == ("stopped\n", 0), errors
    assert (await app.transport().depths())["orders"].ready == 1


async def test_the_second_signal_ends_it_at_once_and_nothing_is_lost(app: Redrive, tmp_path: Path) -> None:
    child = await _child(app, tmp_path, seconds=3600, grace=3600)
    assert child.stderr is not None
    child.send_signal(signal.SIGINT)
    assert "once more to stop at once" in await asyncio.to_thread(child.stderr.readline)
    child.send_signal(signal.SIGINT)
    await asyncio.to_thread(child.communicate, None, 20)
    assert child.returncode == 130
    assert (await app.transport().depths())["orders"].total == 1
