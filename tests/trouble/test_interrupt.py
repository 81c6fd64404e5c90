"""Ctrl-C in the middle: the first drains within the grace, the second stops at once; neither loses anything."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive import Message
from redrive.transports.base import Depth
from tests.trouble.helpers import depth, letters, make_app, start, until_empty, url_in, working

APP = """
import asyncio, os, sys, threading
from datetime import timedelta
from redrive import Message, Policy, Redrive
from redrive.config.settings import Settings

url, kind, grace, lease = sys.argv[1:]
grace, lease = timedelta(seconds=float(grace)), timedelta(seconds=float(lease))
settings = Settings(concurrency=2, batch=10, lease=lease, grace=grace)
app = Redrive(transport=url, settings=settings)

def say(*words):  # in one piece: handlers in two threads may speak at once
    os.write(1, (" ".join(map(str, words)) + os.linesep).encode())

async def finish(body: str, message: Message) -> None:
    say("begin", body, message.attempt)
    await asyncio.get_running_loop().run_in_executor(None, os.read, 0, 1)
    say("end", body)

async def hang(body: str, message: Message) -> None:
    say("begin", body, message.attempt)
    await asyncio.Event().wait()

def hang_in_thread(body: str, message: Message) -> None:
    say("begin", body, message.attempt)
    threading.Event().wait()

app.handler("orders", policy=Policy(attempts=3))({"finish": finish, "hang": hang, "sync": hang_in_thread}[kind])
app.run(upkeep=False)
"""


class Running:
    """An app in a process of its own, with ten messages in its queue, two of them begun."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.app = make_app(directory)
        self.app.declare("orders")

    async def start(self, kind: str, grace: float, lease: float = 60) -> None:
        await self.app.send_messages([self.app.message("orders", f"{number}") for number in range(10)])
        self.process = await start(
            APP,
            url_in(self.directory),
            kind,
            str(grace),
            str(lease),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert {await self.line(), await self.line()} == {"begin 0 1", "begin 1 1"}

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 30)).decode().strip()

    async def told(self, word: bytes) -> None:
        """Until it says so in its log."""
        assert self.process.stderr is not None
        while word not in (line := await asyncio.wait_for(self.process.stderr.readline(), 30)):
            assert line, f"it ended without saying {word!r}"

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    async def code(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 30)

    async def depth(self) -> Depth:
        return (await self.app.transport().depths())["orders"]

    async def handle_the_rest(self) -> dict[str, int]:
        """Body and attempt of everything that is left."""
        seen: dict[str, int] = {}
        app = make_app(self.directory)

        @app.handler("orders")
        async def handle(body: str, message: Message) -> None:
            seen[body] = message.attempt

        async with app, working(app):
            await until_empty(app)
        return seen


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path)
    async with running.app:
        yield running
        if running.process.returncode is None:
            running.process.kill()
        await running.process.communicate()


async def test_the_first_lets_what_runs_finish_and_gives_the_rest_back_uncounted(running: Running) -> None:
    await running.start("finish", grace=30)
    running.interrupt()
    await running.told(b"stopping")
    assert running.process.stdin is not None
    running.process.stdin.write(b"go")
    assert {await running.line(), await running.line()} == {"end 0", "end 1"}
    assert await running.code() == 0
    assert await running.depth() == Depth(ready=8, delayed=0, leased=0)
    assert await running.handle_the_rest() == {f"{number}": 1 for number in range(2, 10)}


async def test_sigterm_does_the_same(running: Running) -> None:
    await running.start("hang", grace=0.2)
    running.process.terminate()
    assert await running.code() == 0
    assert await running.depth() == Depth(ready=10, delayed=0, leased=0)


@pytest.mark.parametrize("kind", ["hang", "sync"])
async def test_what_does_not_finish_within_the_grace_is_given_back_uncounted(running: Running, kind: str) -> None:
    await running.start(kind, grace=0.3)
    running.interrupt()
    assert await running.code() == 0
    assert await running.depth() == Depth(ready=10, delayed=0, leased=0)
    assert await running.handle_the_rest() == {f"{number}": 1 for number in range(10)}


@pytest.mark.parametrize("kind", ["hang", "sync"])
async def test_the_second_stops_at_once_and_everything_comes_back_after_the_lease(running: Running, kind: str) -> None:
    await running.start(kind, grace=600, lease=2)
    running.interrupt()
    await running.told(b"stopping")
    running.interrupt()
    assert await running.code() == 130
    assert await depth(running.app) == 10
    rest = await running.handle_the_rest()
    assert set(rest) == {f"{number}" for number in range(10)}
    assert (rest["0"], rest["1"]) == (2, 2), "what was begun was an attempt"
    assert await letters(running.app) == []
