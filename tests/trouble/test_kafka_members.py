"""Kafka: workers that are known to their group by name, when they are killed, doubled, or refused by a broker."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks.accounts.orders import Orders

from redrive import Redrive
from redrive.testing.waiting import until
from redrive.transports.kafka.reader import HALF_DONE
from tests.servers.fixtures import StartsServer
from tests.servers.kafka import Kafka
from tests.trouble.helpers import ROOT, working
from tests.trouble.kafka import Topic

FIVE_MINUTES = 300_000


async def test_a_named_worker_that_was_killed_has_its_partitions_back_at_once(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """And not when its session ends: that is later than this test waits."""
    topic = Topic(kafka_server)
    url = topic.url(**{"consumer.session.timeout.ms": FIVE_MINUTES})
    for life in range(3):
        topic.produce(*[(b"%d" % number, b"%d" % number) for number in range(30)])
        orders = Orders(url, str(tmp_path), life, 10, source=topic.name)
        arguments = ["-m", "benchmarks.accounts.worker", msgspec.json.encode(orders).decode()]
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)
        try:
            await topic.until_committed(30 * (life + 1))
        finally:
            process.kill()
            await process.wait()


async def test_a_named_worker_that_was_killed_while_it_gave_partitions_away_leaves_none_that_nobody_reads(
    kafka_server: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its session is longer than this test waits: what it owed the group, it has to do when it is back."""
    topic = Topic(kafka_server, partitions=4)
    first, second = (_of_a_long_session(topic, tmp_path, name) for name in ("first", "second"))
    died = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _DIES_WHILE_IT_GIVES_AWAY, topic.servers, topic.group, topic.name),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert died.stdout is not None
        assert await died.stdout.readline() == b"4\n", "it has all partitions"
        async with second, working(second):
            assert await died.wait() == 9, "it died when two of them were taken from it"
            async with first, working(first):
                await topic.until_shared(first=2, second=2)
                for partition in range(4):
                    topic.produce((None, b""), partition=partition)
                await topic.until_committed(4)
        assert [record for record in caplog.records if record.msg == HALF_DONE]
    finally:
        if died.returncode is None:
            died.kill()
            await died.wait()


async def test_a_named_worker_that_was_not_there_before_lets_others_give_away_at_their_leisure(
    kafka_server: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Partitions that nobody reads are no reason to leave again, as long as somebody is about to give them out."""
    topic, begun, may_end = Topic(kafka_server, partitions=4), asyncio.Event(), asyncio.Event()
    first, second = (topic.app(tmp_path, worker=name, url={"consumer.client.id": name}) for name in ("first", "second"))

    @first.handler(topic.name)
    async def hold(body: bytes) -> None:
        begun.set()
        await may_end.wait()

    @second.handler(topic.name)
    async def handle(body: bytes) -> None: ...

    for partition in range(4):
        topic.produce((None, b""), partition=partition)
    async with first, working(first):
        await begun.wait()
        async with second, working(second):
            await topic.until_shared(first=2, second=2)
            may_end.set()
            await topic.until_committed(4)
    assert not [record for record in caplog.records if record.msg == HALF_DONE]


_DIES_WHILE_IT_GIVES_AWAY = """
import os, sys
from confluent_kafka import Consumer
from redrive.transports.kafka.membership import member_name

servers, group, topic = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": servers, "group.id": group, "group.instance.id": member_name("first", topic),
    "partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 300_000,
    "heartbeat.interval.ms": 100, "client.id": "first",
})
consumer.subscribe(
    [topic],
    on_assign=lambda consumer, given: print(len(given), flush=True),
    on_revoke=lambda consumer, taken: os._exit(9),
)
while True:
    consumer.poll(1)
"""


def _of_a_long_session(topic: Topic, directory: Path, name: str) -> Redrive:
    url = {"consumer.client.id": name, "consumer.session.timeout.ms": FIVE_MINUTES}
    app = topic.app(directory, worker=name, url=url)

    @app.handler(topic.name)
    async def handle(body: bytes) -> None: ...

    return app


async def test_two_workers_of_one_name_both_work_and_are_told(
    kafka_server: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, handled, sent = Topic(kafka_server, partitions=4), set[str](), 0
    first, second = (_noting(topic, tmp_path, handled, name) for name in ("first", "second"))

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "redrive.kafka"]

    def both_work() -> bool:
        nonlocal sent
        for partition in range(4):
            topic.produce((None, b""), partition=partition)
        sent += 4
        return handled == {"first", "second"}

    with caplog.at_level(logging.ERROR, logger="redrive.kafka"):
        async with first, working(first), second:
            topic.produce((None, b""))
            await until(lambda: handled == {"first"}, what="the first one works")
            async with working(second):
                await until(lambda: bool(told()), what="the first one has lost its name")
                handled.clear()
                await until(both_work, what="they share the partitions")
                await topic.until_committed(1 + sent)
    [text] = told()
    assert "'same." in text
    assert "name of its own" in text


def _noting(topic: Topic, directory: Path, handled: set[str], name: str) -> Redrive:
    app = topic.app(directory, worker="same")

    @app.handler(topic.name)
    async def handle(body: bytes) -> None:
        handled.add(name)

    return app


async def test_a_broker_that_wants_longer_sessions_gets_them(start_server: StartsServer, tmp_path: Path) -> None:
    topic = Topic(start_server(lambda: Kafka(settings={"group.min.session.timeout.ms": 30_000})), partitions=1)
    topic.produce((b"a", b"0"))
    app = topic.app(tmp_path)

    @app.handler(topic.name)
    async def handle(number: int) -> None: ...

    async with app, working(app):
        await topic.until_committed(1)
