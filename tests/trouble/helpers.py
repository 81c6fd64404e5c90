"""An app on a real SQLite file, a worker around it, and what it told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from redrive import Redrive
from redrive.config.settings import Settings, Upkeep
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.telemetry.events import Event
from redrive.testing.waiting import until
from redrive.worker import Worker

E = TypeVar("E", bound=Event)
ROOT = Path(__file__).parents[2]
QUICK = Upkeep(interval=timedelta(milliseconds=20))


class Told:
    """Every event of an app."""

    def __init__(self, app: Redrive) -> None:
        self.events: list[Event] = []
        app.events.subscribe(self.events.append)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def url_in(directory: Path) -> str:
    return f"sqlite:///{directory / 'redrive.db'}"


def make_app(directory: Path, **changes: Any) -> Redrive:
    """On a file in that directory; settings or parts of it as given."""
    parts = {name: changes.pop(name) for name in ("transport", "store", "clock") if name in changes}
    given: dict[str, Any] = {"lease": timedelta(seconds=30), "upkeep": QUICK, **changes}
    return Redrive(**{"transport": url_in(directory), **parts}, settings=Settings(**given))


@asynccontextmanager
async def working(
    app: Redrive, *, upkeep: bool = False, grace: timedelta = timedelta(seconds=10)
) -> AsyncIterator[Worker]:
    """A worker beside the test, stopped at its end; the app stays open."""
    worker = Worker(app, upkeep=upkeep, grace=grace)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
        assert not running.done(), "the worker ended by itself"
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)


async def depth(app: Redrive) -> int:
    """Everything queued."""
    return sum(one.total for one in (await app.transport().depths()).values())


async def until_empty(app: Redrive) -> None:
    async def is_empty() -> bool:
        return await depth(app) == 0

    await until(is_empty, what="the queue is empty")


async def letters(app: Redrive, query: Query | None = None) -> list[Letter]:
    return list((await app.store.letters.search(query or Query(), limit=1000)).letters)


async def until_letters(app: Redrive, number: int) -> list[Letter]:
    async def are_there() -> bool:
        return await app.store.letters.count(Query()) >= number

    await until(are_there, what=f"there are {number} letters")
    return await letters(app)


async def start(script: str, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
    """A Python process with that code."""
    return await asyncio.create_subprocess_exec(sys.executable, "-c", script, *arguments, cwd=ROOT, **options)
