"""A shop on a broker: its producer, its workers, its store and the command line that sends letters back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker

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

ROOT = Path(__file__).parents[3]
BROKERS = ("rabbitmq", "redis")


class Worker:
    """`dramatiq` as a process."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """As the kernel does it: with all its processes, and no warning."""
        await self._end(signal.SIGKILL)

    async def _end(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)
        await self.child.wait()


class Shop:
    """The app of `shop.py` in a directory of its own, on a queue of its own."""

    def __init__(self, place: Path, broker: str, queue: str, **more: str) -> None:
        self.place = place
        self.broker = broker
        self.queue = queue
        self.store = f"sqlite:///{place / 'letters.db'}"
        self.environment = {"BROKER": broker, "QUEUE": queue, "PLACE": str(place), "STORE": self.store, **more}

    @property
    def transport(self) -> str:
        return f"dramatiq+{self.broker}"

    @property
    def transport_url(self) -> str:
        """What a name of a queue can follow."""
        return self.transport.rstrip("/") + ("" if self.broker.startswith("redis") else "/%2F")

    def configure(self) -> None:
        lines = [f'store = "{self.store}"', "[transports]", f'dramatiq = "{self.transport}"']
        (self.place / "redrive.toml").write_text("\n".join(lines))

    def mend(self) -> None:
        (self.place / "mended").touch()

    def lines(self, name: str) -> list[str]:
        file = self.place / name
        return file.read_text().splitlines() if file.exists() else []

    def send(self, actor: str, *arguments: Any, **options: Any) -> dramatiq.Message[Any]:
        """Send a message, as whoever produces them does; he needs no middleware of ours."""
        message: dramatiq.Message[Any] = dramatiq.Message(self.queue, actor, arguments, {}, options)
        with self.producer() as broker:
            broker.enqueue(message)
        return message

    @contextlib.contextmanager
    def producer(self) -> Iterator[dramatiq.Broker]:
        if self.broker.startswith("redis"):
            redis = RedisBroker(url=self.broker)
            try:
                yield redis
            finally:
                redis.client.connection_pool.disconnect()
        else:
            rabbitmq = RabbitmqBroker(url=self.broker)
            try:
                rabbitmq.declare_queue(self.queue, ensure=True)
                yield rabbitmq
            finally:
                rabbitmq.close()

    def dead(self) -> int:
        """How many messages lie in the dead-letter queue."""
        with self.producer() as broker:
            if isinstance(broker, RedisBroker):
                return int(broker.client.zcard(f"dramatiq:{self.queue}.XQ"))
            return int(broker.get_queue_message_counts(self.queue)[2])  # type: ignore[attr-defined]

    def left(self) -> int:
        """How many messages wait, or are with a worker."""
        with self.producer() as broker:
            if isinstance(broker, RedisBroker):
                key = f"dramatiq:{self.queue}"
                return int(broker.client.hlen(f"{key}.msgs")) + int(broker.client.hlen(f"{key}.DQ.msgs"))
            return sum(broker.get_queue_message_counts(self.queue)[:2])  # type: ignore[attr-defined]

    async def replay(self) -> ReplayReport:
        """Send all letters back."""
        settings = Settings(store=self.store, transports={"dramatiq": self.transport})
        async with Redrive(settings=settings) as app:
            service = Service(app)
            replay = await service.replay(
                Query(states=(State.PENDING, State.EXHAUSTED, State.SENT)), actor=acting("ann")
            )
            return await service.run_replay(replay.id)

    async def entries(self, replay: str) -> dict[EntryStatus, int]:
        """What became of the letters of a replay."""
        store = open_store(self.store)
        try:
            return dict(await store.ledger.tally(replay))
        finally:
            await store.aclose()

    async def python(self, program: str) -> str:
        """Run Python in a process that has the app."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"from tests.integrations.dramatiq.shop import *\n{program}",
            cwd=ROOT, env=self._environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await child.communicate()
        assert child.returncode == 0, errors.decode()
        return out.decode().strip()

    @contextlib.asynccontextmanager
    async def worker(self, *words: str, command: str = "dramatiq") -> AsyncIterator[Worker]:
        log = (self.place / "worker.log").open("ab")
        child = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / command),
            "tests.integrations.dramatiq.shop", "--processes", "1", "--threads", "2",
            "--worker-shutdown-timeout", "2000", *words,
            cwd=ROOT, env=self._environment(), stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        worker = Worker(child)
        try:
            yield worker
        finally:
            await worker.kill()
            log.close()

    def redrive(self, *words: str) -> contextlib.AbstractAsyncContextManager[Process]:
        return redrive(self.place, *words)

    async def run(self, *words: str) -> str:
        """What `redrive …` says."""
        async with self.redrive(*words) as process:
            assert process.child.stdout is not None
            said = (await process.child.stdout.read()).decode()
            assert await process.end() == 0, said + await process.errors()
            return said

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

    async def letter(self, count: int = 1) -> Letter:
        """The one letter, once there are so many failures in it."""
        await until(lambda: self._has(1, count), what=f"a letter with {count} failures")
        [letter] = await self.letters()
        return letter

    async def until_letters(self, number: int) -> Sequence[Letter]:
        await until(lambda: self._has(number, 1), what=f"{number} letters; {self._log()}")
        return await self.letters()

    async def until_lines(self, name: str, number: int) -> None:
        await until(lambda: len(self.lines(name)) >= number, what=f"{number} are {name}; {self._log()}")

    async def is_state(self, state: State) -> bool:
        return {letter.state for letter in await self.letters()} == {state}

    async def has(self, states: Mapping[State, int]) -> bool:
        return Counter(letter.state for letter in await self.letters()) == states

    async def resolved(self, id: str) -> bool:
        return State.RESOLVED in {letter.state for letter in await self.letters() if letter.message.id == id}

    async def _has(self, number: int, failures: int) -> bool:
        letters = await self.letters()
        return len(letters) >= number and all(len(letter.failures) >= failures for letter in letters)

    def _log(self) -> str:
        return (self.place / "worker.log").read_text()[-3000:] if (self.place / "worker.log").exists() else ""

    def _environment(self) -> Mapping[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        return {**ours, **self.environment}


@pytest.fixture
def broker_url(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue(f"{request.param}_server")
    return str(server.url)


@pytest.fixture
def shop(tmp_path: Path, broker_url: str) -> Shop:
    made = Shop(tmp_path, broker_url, f"shop-{tmp_path.name}")
    made.configure()
    return made
