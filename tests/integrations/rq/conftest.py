"""An app that uses RQ: its queue, its workers, its store and the way back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.service import ReplayReport, Service
from redrive.stores.base import EntryStatus
from redrive.stores.sqlite import open_store
from redrive.testing.waiting import until
from tests.actors import acting
from tests.admin.process import Process, redrive
from tests.servers.redis import Redis as RedisServer

ROOT = Path(__file__).parents[3]
SCRIPT = ("-m", "tests.integrations.rq.worker")


class Shop:
    """The jobs of `jobs.py` on a queue of their own."""

    def __init__(self, place: Path, url: str) -> None:
        self.place = place
        self.url = url
        self.name = f"shop-{place.name}"
        self.store = f"sqlite:///{place / 'letters.db'}"
        self.redis = Redis.from_url(url)
        self.queue = Queue(self.name, connection=self.redis)
        lines = [f'store = "{self.store}"', "[transports]", f'rq = "rq+{url}"']
        (place / "redrive.toml").write_text("\n".join(lines))

    def mend(self) -> None:
        (self.place / "mended").touch()

    def lines(self, name: str) -> list[str]:
        file = self.place / name
        return file.read_text().splitlines() if file.exists() else []

    def job(self, id: str) -> Job:
        return Job.fetch(id, connection=self.redis)

    @contextlib.asynccontextmanager
    async def worker(self, *words: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A worker in a group of processes of its own; killed with all of them."""
        with (self.place / "worker.log").open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *(words if words and words[0] != "-c" else (sys.executable, *(words or SCRIPT))),
                cwd=ROOT, env={**self._environment(), **environment}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                yield child
            finally:
                kill(child)
                await child.wait()
                await asyncio.to_thread(self._kill_horses)

    def asked(self, *words: str) -> contextlib.AbstractAsyncContextManager[Process]:
        return redrive(self.place, *words)

    async def run(self, *words: str) -> str:
        """What `redrive …` says."""
        async with redrive(self.place, *words) as process:
            assert process.child.stdout is not None
            said = (await process.child.stdout.read()).decode()
            assert await process.end() == 0, said + await process.errors()
            return said

    async def replay(self) -> ReplayReport:
        """Send all letters back."""
        async with Redrive(settings=Settings(store=self.store, transports={"rq": f"rq+{self.url}"})) as app:
            service = Service(app)
            replay = await service.replay(
                Query(states=(State.PENDING, State.EXHAUSTED, State.SENT)), actor=acting("ann")
            )
            return await service.run_replay(replay.id)

    async def entries(self, replay: str) -> dict[EntryStatus, int]:
        store = open_store(self.store)
        try:
            return dict(await store.ledger.tally(replay))
        finally:
            await store.aclose()

    async def letters(self) -> Sequence[Letter]:
        if not (self.place / "letters.db").exists():
            return ()
        store = open_store(f"sqlite:///{self.place / 'letters.db'}")
        try:
            return (await store.letters.search(Query(), limit=10_000)).letters
        except StoreUnavailable:
            return ()
        finally:
            await store.aclose()

    async def until_letters(self, number: int, failures: int = 1) -> Sequence[Letter]:
        async def there() -> bool:
            found = await self.letters()
            return len(found) >= number and all(len(letter.failures) >= failures for letter in found)

        await until(there, what=f"{number} letters with {failures} failures; {self.log()}")
        return await self.letters()

    async def until_lines(self, name: str, number: int) -> None:
        await until(lambda: len(self.lines(name)) >= number, what=f"{number} are {name}; {self.log()}")

    async def is_state(self, state: State) -> bool:
        return {letter.state for letter in await self.letters()} == {state}

    async def has(self, states: Mapping[State, int]) -> bool:
        return Counter(letter.state for letter in await self.letters()) == states

    def log(self) -> str:
        file = self.place / "worker.log"
        return file.read_text()[-3000:] if file.exists() else ""

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        place = str(self.place)
        more = {"BROKER": self.url, "QUEUE": self.name, "PLACE": place, "STORE": self.store}
        return {**ours, **more, "SPOOL": f"{place}/spool"}

    def _kill_horses(self) -> None:
        """A work horse has a group of its own, and outlives its worker: end those that run in our directory."""
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and f"PLACE={self.place}\0".encode() in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)


def kill(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer) -> Iterator[Shop]:
    made = Shop(tmp_path, redis_server.url)
    yield made
    made.redis.connection_pool.disconnect()
