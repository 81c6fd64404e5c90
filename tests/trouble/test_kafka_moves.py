"""Partitions that move between workers, brokers that die, workers that are killed, a key stuck for an hour."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from redrive import Message, Policy, Redrive, constant
from redrive.model import Reason
from redrive.telemetry.events import BackendDown
from redrive.testing.clock import ManualClock
from redrive.testing.faults import Step
from redrive.testing.waiting import until
from redrive.transports.kafka.reader import Reader
from tests.servers.fixtures import StartsServer
from tests.servers.kafka import Kafka
from tests.trouble.helpers import ROOT, Told, letters, working
from tests.trouble.kafka import MISSED_SOON, Topic
from tests.trouble.order import BEGUN, DONE, Entry, Log, Watch, breaches


def _app(topic: Topic, directory: Path, log: Log, **changes: Any) -> tuple[Redrive, Watch]:
    app = topic.app(directory, concurrency=20, batch=20, **changes)
    watch = Watch(app, log)

    @app.handler(topic.name, policy=Policy(attempts=50, backoff=constant("5ms")))
    async def handle(number: int, message: Message) -> None:
        watch.note(message, number, BEGUN)
        await asyncio.sleep(0.002)
        if number % 50 == 0 and message.attempt == 1:
            raise ConnectionError("not yet")
        watch.note(message, number, DONE)

    return app, watch


async def test_workers_that_join_and_leave_in_the_middle_lose_nothing_and_keep_the_order(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic, log, total = Topic(kafka_server, partitions=6), Log(), 3000
    topic.produce(*[(b"key-%d" % (number % 40), b"%d" % number) for number in range(total)])
    names = ("first", "second")
    (first, one), (second, other) = (_app(topic, tmp_path, log, url={"consumer.client.id": name}) for name in names)
    async with first, working(first):
        await until(lambda: len(log) > 200, what="the first one works")
        async with second:
            async with working(second):
                await topic.until_shared(first=3, second=3)
            await second.transport().aclose()
        await topic.until_shared(first=6)
        await topic.until_committed(total)
    assert set(log.done) == set(range(total))
    assert breaches(log) == []
    assert log.repeats <= one.may_repeat + other.may_repeat, "more was repeated than was handed out and not committed"
    assert await letters(first) == []


async def test_partitions_that_were_paused_go_on_when_they_come_back(kafka_server: Kafka, tmp_path: Path) -> None:
    topic, total = Topic(kafka_server, partitions=2), 200
    for partition in range(2):
        topic.produce(*[(None, b"%d" % number) for number in range(total // 2)], partition=partition)
    begun, may_end = set[str](), asyncio.Event()

    def app_named(name: str) -> Redrive:
        app = topic.app(tmp_path, url={"consumer.client.id": name, "most_open": 10}, concurrency=200)

        @app.handler(topic.name)
        async def handle(number: int, message: Message) -> None:
            begun.add(message.origin.partition("@")[0])
            await may_end.wait()

        return app

    first, second = app_named("first"), app_named("second")
    async with first, working(first):
        await until(lambda: len(begun) == 2, what="both have come, and with them more than may be open")
        async with second:
            async with working(second, grace=timedelta(0)):
                await topic.until_shared(first=1, second=1)
            await second.transport().aclose()
        await topic.until_shared(first=2)
        may_end.set()
        await topic.until_committed(total)


async def test_a_broker_that_is_killed_and_comes_back_under_load(start_server: StartsServer, tmp_path: Path) -> None:
    server = start_server(lambda: Kafka(settings=MISSED_SOON))
    topic, log, total = Topic(server, partitions=3), Log(), 1200
    app, watch = _app(topic, tmp_path, log, url={"reconnect.backoff.max.ms": 500})
    told = Told(app)
    messages = [app.message(topic.name, number, key=f"key-{number % 10}") for number in range(total)]
    async with app, working(app):
        await app.send_messages(messages[:600])
        await until(lambda: len(log) > 100, what="it works")
        server.kill9()
        await until(lambda: bool(told.of(BackendDown)), what="it says so")
        server.start()
        await app.send_messages(messages[600:])
        await until(lambda: len(log.done) == total, timeout=60)
        await topic.until_committed(total)
    assert breaches(log) == []
    assert log.repeats <= watch.may_repeat, "more was repeated than was handed out and not committed"
    assert await letters(app) == []


async def test_a_broker_that_is_killed_is_told_of_though_the_driver_does_not_say_that_all_are_down(
    start_server: StartsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so once at the most: not always, or while messages that came before are taken in."""
    heard = Reader._on_error

    def but_for_all_down(reader: Reader, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            heard(reader, error)

    monkeypatch.setattr(Reader, "_on_error", but_for_all_down)
    server = start_server(lambda: Kafka(settings=MISSED_SOON))
    topic, log = Topic(server, partitions=3), Log()
    app, _ = _app(topic, tmp_path, log)
    told = Told(app)
    async with app, working(app):
        await app.send_messages([app.message(topic.name, number) for number in range(200)])
        await until(lambda: len(log.done) == 200, what="it works")
        server.kill9()
        await until(lambda: bool(told.of(BackendDown)), what="it says so")
        server.start()
        await app.send(topic.name, 200)
        await until(lambda: 200 in log.done, what="it goes on")


async def test_one_key_stuck_for_an_hour_keeps_what_is_held_bounded_and_loses_nothing(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic, clock, total = Topic(kafka_server, partitions=1), ManualClock(), 2000
    topic.produce((b"stuck", b"0"), *[(b"k%d" % (n % 30), b"%d" % n) for n in range(1, total)])
    app = topic.app(tmp_path, url={"most_open": 300}, clock=clock, batch=50)
    handled: Counter[int] = Counter()
    watch = Watch(app, Log())
    mended = asyncio.Event()

    @app.handler(topic.name, policy=Policy(attempts=10_000, backoff=constant("1m")))
    async def handle(number: int) -> None:
        if number == 0 and not mended.is_set():
            raise ConnectionError("down")
        handled[number] += 1

    def held() -> int:
        [partition] = watch.partitions
        records = list(partition.open)
        assert not any(record.message.body for record in records if record.done), "what is done needs no memory"
        return len(records)

    most = 300 + 2 * 500  # what may be open, and what a poll may bring before it is paused
    async with app, working(app):
        await until(lambda: len(handled) >= 250, what="others go on")
        for _ in range(60):
            await clock.advance(60)
            assert held() <= most
        assert topic.committed() == {0: 0}
        assert len(handled) <= most
        mended.set()
        await clock.eventually(topic.until_committed(total), timeout=60)
    assert set(handled) == set(range(total))


# -- killed --------------------------------------------------------------------------------------------------------

_WORKER = """
import asyncio, os, signal, sys
from datetime import timedelta
from redrive import Message, Policy, Redrive, Transient, immediate
from redrive.config.settings import Settings
from redrive.registry import open_store, open_transport
from redrive.clock import SystemClock
from redrive.testing.faults import FaultyStore, FaultyTransport, Killer, Step, faulty_handler
from redrive.worker import Worker

url, store, topic, done, step, nth = sys.argv[1:]

def note(message, number, what):
    file = os.open(done, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{os.getpid()} {message.key.decode()} {number} {what} {message.origin}\\n".encode())
    os.close(file)

async def is_done(transport):
    depth = (await transport.depths()).get(topic)  # None: it is not read yet
    return depth is not None and not depth.total

async def main():
    probe = Killer(Step(step) if step else None, int(nth))
    transport = open_transport(url, clock=SystemClock(), lease=timedelta(seconds=6))
    app = Redrive(
        transport=FaultyTransport(transport, probe), store=FaultyStore(open_store(store), probe),
        settings=Settings(batch=10, concurrency=5),
    )

    async def handle(number: int, message: Message) -> None:
        note(message, number, "begun")
        if number == 666:
            os.kill(os.getpid(), signal.SIGKILL)
        if number % 10 == 3:
            note(message, number, "dead")
            raise ValueError("never")
        if number % 10 == 5 and message.attempt == 1:
            raise Transient("not yet")
        note(message, number, "done")

    app.handler(topic, policy=Policy(attempts=3, backoff=immediate()))(faulty_handler(handle, probe))
    async with app:
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        while not await is_done(transport):
            await asyncio.sleep(0.05)
        worker.stop()
        await running

asyncio.run(main())
"""


class Killed:
    """A worker process on a topic of its own, killed where it is told to be, and started again."""

    def __init__(self, server: Kafka, directory: Path, step: Step | None = None, nth: int = 1) -> None:
        self.topic = Topic(server, partitions=2)
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.step, self.nth = step, nth
        self.app = self.topic.app(directory)

    @property
    def log(self) -> Log:
        """Each process is an owner: it has both partitions until it ends."""
        lines = [line.split() for line in (self.directory / "done").read_text().splitlines()]
        return Log(Entry(owner, key, int(number), what) for owner, key, number, what, _ in lines)

    def after(self, committed: dict[int, int]) -> set[int]:
        """The numbers of what lies there from these offsets on."""
        return {int(one.value()) for one in self.topic.records() if one.offset() >= committed.get(one.partition(), 0)}

    async def run(self, step: Step | None = None) -> int:
        """Its exit code. A static member of its group: the one that is started next need not wait for its session."""
        url = self.topic.url(
            **{"counters": f"sqlite:///{self.directory}/counters.db", "consumer.group.instance.id": "worker"}
        )
        store = f"sqlite:///{self.directory}/letters.db"
        arguments = (url, store, self.topic.name, str(self.directory / "done"), step or "", str(self.nth))
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", _WORKER, *arguments, cwd=ROOT)
        try:
            return await asyncio.wait_for(process.wait(), 300)
        finally:
            if process.returncode is None:
                process.kill()


STEPS = {
    Step.RECEIVED: 2,
    Step.ATTEMPTED: 25,
    Step.BEFORE_RECORD: 2,
    Step.AFTER_RECORD: 2,
    Step.BEFORE_ACK: 3,
    Step.AFTER_ACK: 3,
}


async def test_a_worker_killed_at_any_step_loses_nothing_and_keeps_the_order(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    async def killed(step: Step, nth: int) -> None:
        one, total = Killed(kafka_server, tmp_path / step, step, nth), 100
        one.topic.produce(*[(b"k%d" % (number % 7), b"%d" % number) for number in range(total)])
        assert await one.run(step) == -9, f"it was not killed: {step}"
        before, left = one.log, one.after(one.topic.committed())
        assert await one.run() == 0
        good, log = {number for number in range(total) if number % 10 != 3}, one.log
        assert set(log.done) == good, step
        assert breaches(log) == [], step
        assert {entry.number for entry in log[len(before) :]} <= left, "it does not go on from the committed place"
        assert log.repeats <= len(before.done.keys() & left), "more was repeated than was done and not committed"
        async with one.app:
            buried = await letters(one.app)
        assert {int(letter.message.body) for letter in buried} == set(range(total)) - good, step
        assert sum(one.topic.committed().values()) == total, step

    for steps in (list(STEPS.items())[:3], list(STEPS.items())[3:]):
        await asyncio.gather(*(killed(step, nth) for step, nth in steps))


async def test_a_message_that_kills_its_worker_each_time_is_buried_in_the_end_and_alone(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    one = Killed(kafka_server, tmp_path)
    one.topic.produce(*[(b"k%d" % number, b"%d" % (number or 666)) for number in (1, 2, 0, 4)], partition=0)
    assert [await one.run() for _ in range(5)] == [-9, -9, -9, -9, 0]
    async with one.app:
        [letter] = await letters(one.app)
    assert (letter.message.body, letter.reason) == (b"666", Reason.CRASHED)
    begun = Counter(entry.number for entry in one.log if entry.what == BEGUN)
    assert begun[666] == 4, "three attempts, and the first one, of which nobody knew"
    assert set(one.log.done) == {1, 2, 4}
    assert sum(one.topic.committed().values()) == 4
