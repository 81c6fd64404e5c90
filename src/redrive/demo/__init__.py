"""The live demonstration: five small systems on the embedded transport, whose world goes wrong and recovers.

It has a past (past.py), people who act on it (people.py), and goes on for as long as it is left open. Everything in it
comes through the code that does the same in production; only what fails is invented.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive.admin.server import serve  # (after the others: it says which extra it needs)
from redrive.app import Redrive
from redrive.cli.hints import program_from_anywhere
from redrive.config import settings
from redrive.demo.narrator import Narrator, Terminal
from redrive.demo.past import Past
from redrive.demo.people import People
from redrive.demo.stage import Life, Stage, together
from redrive.errors import MissingExtra
from redrive.service import Service
from redrive.systems.base import resolved

if TYPE_CHECKING:
    from redrive.admin.server import Server

LIVES = {
    "email": ("redrive.demo.email:EmailLife", ""),
    "files": ("redrive.demo.files:FilesLife", ""),
    "pipeline": ("redrive.demo.pipeline:PipelineLife", "grpc,yaml"),
    "tickets": ("redrive.demo.tickets:TicketsLife", ""),
    "workflow": ("redrive.demo.workflow:WorkflowLife", ""),
}
"""The systems, and the extras that one needs."""
_SEEN_TO = 20.0  # seconds until somebody sees to an incident
_SEEDED = "demo-past"
_TALKATIVE = ("grpc", "redrive.pipeline", "redrive.workflow")  # they warn of what is meant to be wrong here


class Demo:
    """The five systems, on one SQLite file in a directory of its own."""

    def __init__(self, place: Path | None = None, say: Callable[[str], Any] = lambda text: None) -> None:
        place = Path(tempfile.mkdtemp(prefix="redrive-demo-")) if place is None else place
        place.mkdir(parents=True, exist_ok=True)
        self.file = (place / "demo.db").resolve()
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._say = say
        self.stage = Stage(self.file.parent, _settings(f"sqlite:///{self.file}"), say)
        self.lives: list[Life] = []
        self.left_out: list[str] = []

    async def serve(self, port: int) -> None:
        """Until Ctrl-C."""
        async with self.opened() as app:
            await serve(app, "127.0.0.1", port, beside=[self.live], started=self.introduce)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Redrive]:
        """What the server serves, with its past, and with what people did about it."""
        await self._begin()
        own = self.stage.settings
        for life in self.lives:
            own = life.settings(own)
        app = Redrive(settings=own, clock=self.stage.clock)
        app.events = self.stage.events
        app.notifiers.append(Terminal(self.stage))
        try:
            if await app.store.documents.put(_SEEDED, "seeded", {}, expect=0):
                await self._seed(app)
            self._narrator = Narrator(self.stage, Service(app))
            yield app
        finally:
            for life in self.lives:
                await life.aclose()

    async def _begin(self) -> None:
        for name, (target, extra) in LIVES.items():
            try:
                life: Life = resolved(target, extra)(self.stage)
            except MissingExtra as error:
                self.left_out.append(f"{name}: {error}")
                continue
            await life.open()
            self.lives.append(life)

    async def _seed(self, app: Redrive) -> None:
        self._say("Two days of their past are made first, which takes some seconds.")
        past = Past(self.stage.clock.now())
        for life in self.lives:
            await life.past(past)
        await past.write(app.store)
        people = People(Service(app))
        for life in self.lives:
            await life.people(people)

    def introduce(self, server: Server) -> None:
        redrive = f"{program_from_anywhere()} --store {shlex.quote(f'sqlite:///{self.file}')}"
        watch = "\n".join(f"            {life.name:10}{life.watch}" for life in self.lives)
        missing = "".join(f"\n            left out  {line}" for line in self.left_out)
        self._say(_INTRODUCTION.format(url=server.url, file=self.file, redrive=redrive, watch=watch + missing))

    async def live(self) -> None:
        """Let all of them go on, until it is cancelled."""
        await together(self._narrator.run, self._see_to_incidents, *(life.live for life in self.lives))

    async def _see_to_incidents(self) -> None:
        people = People(self._narrator.service)
        while True:
            await asyncio.sleep(_SEEN_TO)
            await people.see_to_incidents()


def _settings(url: str) -> settings.Settings:
    return settings.Settings(
        store=url,
        transports={"default": url},
        worker="demo",
        upkeep=settings.Upkeep(interval=timedelta(milliseconds=500)),
        retention=settings.Retention(max_letters=2500),
        access=settings.Access(approve_over=150),
        alerts=settings.Alerts(growth=25, interval=timedelta(seconds=2), resolve_after=timedelta(seconds=30)),
    )


_INTRODUCTION = """
Five small systems run here, and their world goes wrong. Everything is in {file}

  Open      {url}

  Watch
{watch}

  Try, in another terminal
            {redrive} groups
            {redrive} letters --source email:send --state pending
            {redrive} replay --source q.thumbnail --error-type KeyError
            {redrive} stats

Stop with Ctrl-C.
"""
