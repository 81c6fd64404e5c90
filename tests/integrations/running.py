"""Workers of other people as processes, and the letters that come of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from redrive.app import Redrive
from redrive.config.load import load
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.registry import open_store
from redrive.service import Service
from redrive.testing.waiting import until
from tests.actors import acting

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds


class Program:
    """A process whose output is a file."""

    def __init__(self, child: asyncio.subprocess.Process, log: Path) -> None:
        self._child = child
        self._log = log

    async def code(self) -> int:
        """How it ends."""
        async with asyncio.timeout(120):
            return await self._child.wait()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    async def until(self, text: str, times: int = 1) -> None:
        """Wait until it has said that; if it ends before, the error says what it said."""

        def has_said() -> bool:
            if self.said.count(text) >= times:
                return True
            assert self._child.returncode is None, f"it ended without {text!r}:\n{self.said}"
            return False

        await until(has_said, timeout=PATIENCE, what=f"{text!r} {times} times")

    async def kill(self) -> None:
        """As the kernel would, it and all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        await self._child.wait()

    async def end(self) -> int:
        """As somebody who deploys would."""
        self._child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            return await self._child.wait()


class Place:
    """A directory with a store, a spool and workers.

    ways   the transports of its settings
    """

    def __init__(self, directory: Path, ways: Mapping[str, str], store: str = "") -> None:
        self.directory = directory
        self.store = store or f"sqlite:///{directory / 'redrive.db'}"
        self.ways = ways
        self._programs = 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(self.directory / "state"),
            "REDRIVE_STORE": self.store,
            **{f"REDRIVE_TRANSPORTS_{name.upper()}": url for name, url in self.ways.items()},
        }

    @contextlib.asynccontextmanager
    async def running(self, *command: str | Path, **more: str) -> AsyncIterator[Program]:
        """A program in that directory, killed with all its children at the end."""
        self._programs += 1
        log = self.directory / f"program-{self._programs}.log"
        with log.open("wb") as output:
            child = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.directory,
                env={**_outside(), **self.environment, **more},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        program = Program(child, log)
        try:
            yield program
        finally:
            await program.kill()

    async def done(self, *command: str | Path, **more: str) -> str:
        """What a program says that has to end well."""
        async with self.running(*command, **more) as program:
            assert await program.code() == 0, program.said
            return program.said

    async def letters(self, **query: object) -> Sequence[Letter]:
        store = open_store(self.store)
        try:
            return (await store.letters.search(Query(**query), limit=1000)).letters  # type: ignore[arg-type]
        finally:
            await store.aclose()

    async def until_letters(self, count: int, **query: object) -> Sequence[Letter]:
        """Wait until there are so many letters like that."""
        found: Sequence[Letter] = ()

        async def enough() -> bool:
            nonlocal found
            found = await self.letters(**query)
            return len(found) >= count

        await until(enough, timeout=PATIENCE, what=f"{count} letters {query}")
        assert len(found) == count
        return found

    async def until_state(self, id: str, *states: State) -> Letter:
        [letter] = await self.until_letters(1, ids=(id,), states=states)
        return letter

    @contextlib.asynccontextmanager
    async def app(self) -> AsyncIterator[Redrive]:
        given = {name: value for name, value in self.environment.items() if name.startswith("REDRIVE_")}
        async with Redrive(settings=load(environ=given)) as app:
            yield app

    async def replay(self, **query: object) -> None:
        """Send letters back, all of them if nothing is said of which."""
        async with self.app() as app:
            service = Service(app)
            replay = await service.replay(Query(**query), every=not query, actor=acting("test"))  # type: ignore[arg-type]
            await service.run_replay(replay.id)


def _outside() -> dict[str, str]:
    """The environment without settings of Redrive's that the run of the tests was given."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}


def tool(name: str) -> Path:
    """A program of the environment that runs the tests."""
    return Path(sys.executable).parent / name
