"""Handlers that hang, exit, or take their worker down: one bad message never stops the others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from redrive import Policy, Redrive, immediate
from redrive.model import Category, Reason, State
from tests.trouble.helpers import letters, make_app, start, until_empty, until_letters, url_in, working

ONCE = Policy(attempts=1)


async def test_an_async_handler_that_hangs_fails_its_attempt(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    done: list[str] = []

    @app.handler("orders", policy=Policy(attempts=2, backoff=immediate(), timeout="50ms"), concurrency=1)
    async def handle(body: str) -> None:
        if body == "hang":
            await asyncio.Event().wait()
        done.append(body)

    async with app, working(app):
        for body in ("hang", "fine", "also fine"):
            await app.send("orders", body)
        await until_empty(app)
        [letter] = await letters(app)
    assert done == ["fine", "also fine"]
    assert (letter.reason, len(letter.failures)) == (Reason.ATTEMPTS, 2)
    assert letter.last.type.endswith("AttemptTimeout")
    assert letter.category is Category.NETWORK or letter.category is Category.TRANSIENT


async def test_a_sync_handler_that_hangs_does_not_keep_others_from_being_handled(tmp_path: Path) -> None:
    """Python cannot end its thread, so another one takes its place."""
    app = make_app(tmp_path)
    release, done = threading.Event(), list[str]()

    @app.handler("orders", policy=Policy(attempts=1, timeout="300ms"), concurrency=1)
    def handle(body: str) -> None:
        if body == "hang":
            release.wait()
        done.append(body)

    try:
        async with app, working(app):
            await app.send("orders", "hang")
            for number in range(5):
                await app.send("orders", f"fine {number}")
            await until_empty(app)
            buried = await letters(app)
    finally:
        release.set()
    assert [letter.message.body for letter in buried] == [b"hang"]
    assert sorted(done)[:5] == [f"fine {number}" for number in range(5)]


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_a_handler_that_exits_fails_its_attempt(tmp_path: Path, how: str) -> None:
    app = make_app(tmp_path)
    done: list[str] = []

    def act(body: str) -> None:
        if body == "exit":
            raise SystemExit(3)
        done.append(body)

    async def act_async(body: str) -> None:
        act(body)

    app.handler("orders", policy=ONCE)(act if how == "sync" else act_async)
    async with app, working(app):
        await app.send("orders", "exit")
        await app.send("orders", "fine")
        await until_empty(app)
        [letter] = await letters(app)
    assert (letter.last.type, done) == ("SystemExit", ["fine"])


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_an_iterator_that_is_empty_is_an_ordinary_failure(tmp_path: Path, how: str) -> None:
    """`next(iter([]))` raises StopIteration, which no future can carry."""
    app = make_app(tmp_path)

    def act(body: str) -> None:
        next(iter(()))

    async def act_async(body: str) -> None:
        act(body)

    app.handler("orders", policy=ONCE)(act if how == "sync" else act_async)
    async with app, working(app):
        await app.send("orders", "x")
        [letter] = await until_letters(app, 1)
    assert "StopIteration" in letter.last.stack


class Nasty(Exception):
    """Fails at everything an error is asked for."""

    code = "\udcff"

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


async def test_errors_that_cannot_be_written_down_are_written_down(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    noted = ValueError("with a note")
    noted.add_note("\udcff not UTF-8")
    looped = ValueError("its own cause")
    looped.__cause__ = looped
    errors = [
        Nasty(),
        noted,
        looped,
        ValueError("\udcff\x00"),
        ValueError("x" * 1_000_000),
        Exception(),
        KeyError(),
    ]

    @app.handler("orders", policy=ONCE)
    async def handle(body: int) -> None:
        raise errors[body]

    async with app, working(app):
        for number in range(len(errors)):
            await app.send("orders", number)
        await until_letters(app, len(errors))
        await until_empty(app)


CRASHER = """
import os, sys
from datetime import timedelta
from redrive import Policy, Redrive, immediate
from redrive.config.settings import Settings

url, done = sys.argv[1:]
app = Redrive(transport=url, settings=Settings(lease=timedelta(seconds=1), concurrency=2, batch=4))

@app.handler("orders", policy=Policy(attempts=3, backoff=immediate()))
async def handle(body: str) -> None:
    if body == "poison":
        os._exit(70)
    with open(done, "a") as file:
        file.write(body + "\\n")

app.run()
"""


async def test_a_message_that_takes_its_worker_down_is_buried_and_the_others_go_on(tmp_path: Path) -> None:
    app, done = make_app(tmp_path), tmp_path / "done"
    app.declare("orders")
    bodies = [f"fine {number}" for number in range(20)]
    async with app:
        await app.send_messages([app.message("orders", body) for body in [*bodies[:5], "poison", *bodies[5:]]])
        crashes = 0
        process = await start(CRASHER, url_in(tmp_path), str(done))
        while True:
            ended = asyncio.ensure_future(process.wait())
            buried = asyncio.ensure_future(_buried_and_empty(app))
            await asyncio.wait([ended, buried], return_when=asyncio.FIRST_COMPLETED, timeout=60)
            if not ended.done():
                assert buried.done(), "neither a crash nor an end"
                process.terminate()
                assert await ended == 0
                break
            buried.cancel()
            await asyncio.gather(buried, return_exceptions=True)
            assert process.returncode == 70
            crashes += 1
            assert crashes < 20, "it crashes on and on"
            process = await start(CRASHER, url_in(tmp_path), str(done))
        [letter] = await letters(app)
    assert (letter.message.body, letter.reason, letter.state) == (b"poison", Reason.CRASHED, State.PENDING)
    assert set(done.read_text().splitlines()) == set(bodies)
    assert crashes >= 3


async def _buried_and_empty(app: Redrive) -> None:
    await until_letters(app, 1)
    await until_empty(app)
