"""A pause over worker processes on real servers: all of them at once, those killed, those that start later."""

from __future__ import annotations

import asyncio
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.errors import UnknownSource
from redrive.forensics.workers import WorkerState
from redrive.service import Service
from redrive.testing.waiting import until
from tests.actors import acting
from tests.conformance.test_kafka_transport import make_topics
from tests.servers import web
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.servers.redis import Redis

pytestmark = pytest.mark.servers
_WORKER = """
import asyncio, logging, os, sys
from datetime import timedelta
from redrive import Message, Redrive
from redrive.config.settings import Settings
from redrive.worker import run

def main(transport, store, log, orders, pulse):
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    settings = Settings(lease=timedelta(seconds=10), batch=20, concurrency=5, version="v7")
    app = Redrive(transport=transport, store=store, settings=settings)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def note(message: Message) -> None:
        os.write(file, f"{message.source} {message.id} {message.attempt} {os.getpid()}\\n".encode())

    @app.handler(orders)
    async def handle(body: bytes, message: Message) -> None:
        await note(message)
        await asyncio.sleep(0.02)

    @app.handler(pulse, concurrency=1)
    async def beat(body: bytes, message: Message) -> None:
        await note(message)

    run(app, upkeep=False, grace=timedelta(seconds=5))

main(*sys.argv[1:])
"""


class Workers:
    """Worker processes of one app, and what they have handled."""

    def __init__(self, transport: str, place: Path, orders: str, pulse: str) -> None:
        self.transport, self.store, self.log = transport, f"sqlite:///{place / 'letters.db'}", place / "log"
        self.orders, self.pulse = orders, pulse
        self.processes: list[Process] = []
        self.said: dict[int, str] = {}
        self._listening: list[asyncio.Task[None]] = []

    async def start(self, number: int = 1) -> None:
        for _ in range(number):
            words = [self.transport, self.store, str(self.log), self.orders, self.pulse]
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", _WORKER, *words, stderr=PIPE)
            self.processes.append(process)
            self._listening.append(asyncio.create_task(self._listen(process)))

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self.said[process.pid] = self.said.get(process.pid, "") + line.decode()

    def handled(self, source: str) -> list[tuple[str, int]]:
        """Id and attempt of each, in the order in which they were handled."""
        rows = [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [(id, int(attempt)) for name, id, attempt, _ in rows if name == source]

    def all_said(self, text: str) -> bool:
        return all(text in self.said.get(process.pid, "") for process in self.processes if process.returncode is None)

    async def end(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(asyncio.wait_for(process.wait(), 60) for process in self.processes))
        await asyncio.gather(*self._listening)


@pytest.fixture
def sqlite(tmp_path: Path) -> Workers:
    return Workers(f"sqlite:///{tmp_path / 'queue.db'}", tmp_path, "orders", "pulse")


@pytest.fixture
def redis(tmp_path: Path, redis_server: Redis) -> Workers:
    return Workers(f"{redis_server.url}?prefix=pause-{secrets.token_hex(4)}", tmp_path, "orders", "pulse")


@pytest.fixture
def kafka(tmp_path: Path, kafka_server: Kafka) -> Workers:
    name = f"pause-{secrets.token_hex(4)}"
    make_topics(kafka_server, f"{name}.orders", partitions=4)
    make_topics(kafka_server, f"{name}.pulse")
    options = f"group={name}&counters=sqlite:///{tmp_path / 'counts.db'}&session.timeout.ms=6000"
    return Workers(f"kafka://{kafka_server.bootstrap}/?{options}", tmp_path, f"{name}.orders", f"{name}.pulse")


@pytest.fixture
def rabbitmq(tmp_path: Path, rabbitmq_server: RabbitMQ) -> Iterator[Workers]:
    vhost = f"pause-{secrets.token_hex(4)}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{vhost}"
    web.call("PUT", place, credentials=GUEST)
    yield Workers(f"{rabbitmq_server.url.rstrip('/')}/{vhost}?delay=1s", tmp_path, "orders", "pulse")
    web.call("DELETE", place, credentials=GUEST)


@pytest.fixture(params=["sqlite", "redis", "kafka", "rabbitmq"])
async def workers(request: pytest.FixtureRequest) -> AsyncIterator[Workers]:
    made: Workers = request.getfixturevalue(request.param)
    try:
        yield made
    finally:
        await made.end()


@asynccontextmanager
async def on(workers: Workers) -> AsyncIterator[tuple[Redrive, Service]]:
    """The same queue and store, as a server or a command sees it: without a handler."""
    async with Redrive(settings=Settings(store=workers.store, transports={"default": workers.transport})) as app:
        app.declare(workers.orders, workers.pulse)
        yield app, Service(app)


async def test_all_workers_stop_receiving_at_once_and_those_that_start_later_do_not_begin(workers: Workers) -> None:
    orders, pulse = workers.orders, workers.pulse
    async with on(workers) as (app, service):
        await workers.start(2)
        first = [await app.send(orders, b"1", key=f"{number}") for number in range(40)]
        await until(lambda: len(workers.handled(orders)) >= 5, what="they work")
        report = await service.pause(orders, actor=acting("ann"), why="a test")
        assert report.is_new
        again = await service.pause(orders, actor=acting("bob"))
        assert (again.is_new, again.pause.by, again.pause.why) == (False, "ann", "a test")
        await until(lambda: workers.all_said("is paused by ann"), what="both have seen it")
        seen = datetime.now(UTC)
        await until(lambda: _is_at_rest(service, seen), what="what ran has ended, what did not was given back")

        workers.processes[0].kill()
        await workers.processes[0].wait()
        await workers.start(1)
        at_rest = workers.handled(orders)
        second = [await app.send(orders, b"2", key=f"{number}") for number in range(20)]
        for number in range(3):  # each is handled after all of this was there to be received
            id = await app.send(pulse, b"!", key=f"{number}")
            await until(lambda id=id: id in dict(workers.handled(pulse)), what="pulse goes on")  # type: ignore[misc]
        await until(
            lambda: len(_alive(workers)) == 2 and workers.all_said("is paused by ann"), what="the new one knows"
        )
        assert workers.handled(orders) == at_rest
        page = await service.queue(orders, limit=1000)
        waiting = {message.id for message in page.messages}
        assert waiting == {*first, *second} - {*dict(at_rest)} or (not waiting and page.notes), "looking takes nothing"
        assert page.paused is not None
        assert page.paused.by == "ann"

        ended = await service.resume(orders, actor=acting("bob"))
        assert ended is not None
        assert ended.by == "ann"
        await until(lambda: {*dict(workers.handled(orders))} == {*first, *second}, what="all are handled")
    repeats = [id for id, count in Counter(id for id, _ in workers.handled(orders)).items() if count > 1]
    assert repeats == [], "a pause doubles nothing"
    assert {attempt for _, attempt in workers.handled(orders)} == {1}, "what was given back was not counted"


async def _is_at_rest(service: Service, since: datetime) -> bool:
    """Whether every worker has said since then that it has nothing of it in hand."""
    found = await service.workers()
    in_hand = [working.in_hand for worker in found for working in worker.sources if working.paused]
    return bool(found) and all(worker.beat_at > since for worker in found) and not any(in_hand)


def _alive(workers: Workers) -> list[Process]:
    return [process for process in workers.processes if process.returncode is None]


async def test_workers_say_what_they_do_and_one_that_is_killed_is_lost(workers: Workers) -> None:
    async with on(workers) as (app, service):
        await workers.start(2)
        await app.send(workers.orders, b"1")
        await until(lambda: len(workers.handled(workers.orders)) == 1, what="it is handled")
        await until(lambda: _count(service, WorkerState.RUNNING, 2), what="both have said something")
        for worker in await service.workers():
            assert worker.pid in {process.pid for process in workers.processes}
            assert (worker.version, worker.clock_apart) == ("v7", None)
            assert [working.source for working in worker.sources] == [workers.orders, workers.pulse]
        workers.processes[0].kill()
        workers.processes[1].terminate()
        await until(lambda: _count(service, WorkerState.LOST, 1), what="only the killed one is left, and lost")
        [lost] = await service.workers()
        assert lost.pid == workers.processes[0].pid


async def _count(service: Service, state: WorkerState, number: int) -> bool:
    found = await service.workers()
    return len(found) == number == sum(worker.state is state for worker in found)


async def test_a_source_whose_worker_is_away_is_known_and_a_typo_is_not(workers: Workers) -> None:
    async with on(workers) as (app, _):
        await app.send(workers.orders, b"1")
    settings = Settings(store=workers.store, transports={"default": workers.transport})
    async with Redrive(settings=settings) as other:  # as the command line is: it knows no source of its own
        service = Service(other)
        with pytest.raises(UnknownSource, match="--force"):
            await service.pause(f"{workers.orders}x", actor=acting("ann"))
        assert await service.pauses() == []
        assert (await service.pause(workers.orders, actor=acting("ann"))).is_new
        paused = {item.source: item.paused for item in (await service.stats()).sources}[workers.orders]
        assert paused is not None
        assert paused.by == "ann"
    await workers.start(1)
    async with on(workers) as (app, service):
        pulse = await app.send(workers.pulse, b"!")
        await until(lambda: pulse in dict(workers.handled(workers.pulse)), what="pulse goes on")
        assert workers.handled(workers.orders) == []
        await service.resume(workers.orders, actor=acting("ann"))
        await until(lambda: len(workers.handled(workers.orders)) == 1, what="it goes on")
