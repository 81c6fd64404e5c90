"""What the five systems of the demonstration share: one SQLite file, one clock, and what each of them has to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.app import Redrive
from redrive.clock import Clock, SystemClock
from redrive.config.settings import Settings
from redrive.model import Message
from redrive.telemetry.events import Events
from redrive.worker import Worker

if TYPE_CHECKING:
    from redrive.demo.past import Past
    from redrive.demo.people import People

TENANTS = ("acme", "globex", "initech", "umbrella", "hooli")
_MOST_WAITING = 300


class Stage:
    """Where they run.

    events   of the server: it counts what happens in every worker, and tells of it
    """

    def __init__(self, place: Path, settings: Settings, say: Callable[[str], Any]) -> None:
        self.place = place
        self.settings = settings
        self.url = settings.store
        self.clock: Clock = SystemClock()
        self.began = self.clock.elapsed()
        self.events = Events()
        self.random = Random()
        self.sent = 0
        self._say = say

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return self.clock.elapsed() - self.began

    def say(self, text: str) -> None:
        minutes, seconds = divmod(int(self.age), 60)
        self._say(f"{minutes:02}:{seconds:02}  {text}")

    def settings_for(self, worker: str, version: str, *sections: Struct) -> Settings:
        """The settings of one worker, which has a name and a version of its own."""
        own = replace(self.settings, worker=worker, version=version)
        for section in sections:
            own = own.having(section)
        return own

    def app(self, worker: str, version: str) -> Redrive:
        return Redrive(settings=self.settings_for(worker, version), clock=self.clock)

    async def work(self, app: Redrive, until: asyncio.Event | None = None) -> None:
        """Run a worker of that app until the event, or until it is cancelled: what it has in hand is finished."""
        heard = app.events.subscribe(self.events.emit)
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        ending = asyncio.create_task((until or asyncio.Event()).wait())
        try:
            await asyncio.wait((running, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            worker.stop()
            await running
            heard()

    async def send(self, app: Redrive, *messages: Message) -> None:
        """Send them, unless so much waits there already: a demonstration may be left open over a weekend."""
        for message in messages:
            handler = app.handlers[message.source]
            depths = await app.transport(handler.transport).depths()
            depth = depths.get(message.source)
            if depth is None or depth.ready < _MOST_WAITING:
                await app.send_messages([message])
                self.sent += 1

    async def pause(self, seconds: float) -> None:
        """About that long."""
        await self.clock.sleep(seconds * self.random.uniform(0.7, 1.3))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def tenant(self) -> str:
        return self.random.choice(TENANTS)


class Life:
    """One system: what it runs, what happened to it, what people did about it, and how it goes on."""

    name = ""
    watch = ""  # what there is to see, in a line or two

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def settings(self, settings: Settings) -> Settings:
        """Those of the server, with what it has to know to send letters of this system back."""
        return settings

    async def open(self) -> None:
        """Make ready to handle messages."""

    async def past(self, past: Past) -> None:
        """Let what happened before happen."""

    async def people(self, people: People) -> None:
        """What people have said and done by now."""

    async def live(self) -> None:
        """Go on, until it is cancelled."""

    async def aclose(self) -> None:
        """Let go of everything."""


async def together(*lives: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """All of them, until they are cancelled or one of them fails."""
    async with asyncio.TaskGroup() as group:
        for live in lives:
            group.create_task(live())
