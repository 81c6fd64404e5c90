"""Dead letters of Spring for Apache Kafka and of Kafka Connect, as these write them, into a store and back to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from redrive import Redrive
from redrive.collect.collector import Collector
from redrive.collect.kafka import KafkaReader
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.registry import open_transport
from redrive.service import ReplayReport, Service
from redrive.stores.base import EntryStatus
from redrive.testing.waiting import until
from tests.actors import acting
from tests.servers.consumers import Consumers
from tests.servers.kafka import Kafka
from tests.trouble.helpers import letters
from tests.trouble.kafka import Topic

OWN: list[tuple[str, bytes | None]] = [("trace", b"\xff\x00"), ("kafka_replyTopic", b"answers")]


class Onlooker:
    """Sees every record of a topic, from its beginning."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer: Any = Consumer({"bootstrap.servers": servers, "group.id": "nobody"})
        places = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in places])
        self._seen: list[Any] = []

    def of(self, bodies: Sequence[str]) -> list[Any]:
        """The records with these values, so far."""
        wanted = {body.encode() for body in bodies}
        self._seen += [record for record in self._consumer.consume(500, 0.1) if record.error() is None]
        return [record for record in self._seen if record.value() in wanted]

    def close(self) -> None:
        self._consumer.close()


class Java:
    """A topic that a consumer of others reads, the one with its dead, and a store to collect them into."""

    def __init__(self, kafka: Kafka, consumers: Consumers, place: Path, main: str, dead: str) -> None:
        self.consumers = consumers
        self.main = Topic(kafka, make=False)
        self.main.name = main
        self.sent, self.dead = Onlooker(kafka.bootstrap, main), Onlooker(kafka.bootstrap, dead)
        self._topic = dead
        self._broker = (
            f"kafka://{kafka.bootstrap}/?group=collector-{uuid4().hex[:8]}&consumer.enable.partition.eof=true"
        )
        self.store = f"sqlite:///{place / 'redrive.db'}"

    def produce(self, *bodies: str) -> None:
        for body in bodies:
            self.main.produce((b"key", body.encode()), headers=OWN)

    async def until_dead(self, bodies: Sequence[str], count: int) -> list[Any]:
        await until(lambda: len(self.dead.of(bodies)) == count, what=f"{count} are dead")
        return self.dead.of(bodies)

    async def first(self, body: str) -> Any:
        """The first record of that body on its topic."""
        await until(lambda: len(self.sent.of([body])) > 0, what="it is sent")
        return self.sent.of([body])[0]

    async def collect(self) -> None:
        async with self.app() as app:
            lease = app.settings.lease
            broker = open_transport(self._broker, clock=app.clock, lease=lease)
            try:
                reader, events = KafkaReader(self._topic), app.events
                collector = Collector(
                    broker, self._topic, reader, app.store, events=events, clock=app.clock, lease=lease
                )
                await collector.run(follow=False)
            finally:
                await broker.aclose()

    def app(self) -> Redrive:
        return Redrive(transport=self.main.url(), store=self.store)

    async def letters(self, *bodies: str) -> list[Letter]:
        """The letters of these, in their order; there may be others, of other tests."""
        async with self.app() as app:
            found = await letters(app)
        return [letter for body in bodies for letter in found if letter.message.body == body.encode()]

    async def replay(self, *ids: str) -> ReplayReport:
        async with self.app() as app:
            app.declare(self.main.name)
            service = Service(app)
            replay = await service.replay(Query(ids=ids), actor=acting("test"))
            return await service.run_replay(replay.id)

    async def report(self, id: str) -> ReplayReport:
        async with self.app() as app:
            return await Service(app).replay_report(id)


class MakesJava(Protocol):
    def __call__(self, main: str, dead: str) -> Java: ...


@pytest.fixture
def make_java(
    kafka_server: Kafka, java_consumers: Consumers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakesJava]:
    monkeypatch.chdir(tmp_path)
    made: list[Java] = []

    def make(main: str, dead: str) -> Java:
        made.append(Java(kafka_server, java_consumers, tmp_path, main, dead))
        return made[-1]

    yield make
    for java in made:
        java.sent.close()
        java.dead.close()


def named(word: str) -> str:
    return f"{word} {uuid4().hex[:8]}"


def at(record: Any) -> datetime:
    return datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC)


def lies(record: Any) -> str:
    return f"{record.topic()}[{record.partition()}]@{record.offset()}"


@pytest.mark.parametrize(
    ("dead", "group", "attempts", "way"),
    [
        ("java-orders.DLT", "billing", 1, ["java-orders"] * 3),
        ("java-shipping-dlt", "shipping", 3, ["java-shipping", "java-shipping-retry-100", "java-shipping-retry-200"]),
    ],
)
async def test_what_spring_says_is_understood_and_sent_back_it_goes_the_whole_way_again(
    dead: str, group: str, attempts: int, way: list[str], make_java: MakesJava
) -> None:
    java = make_java(way[0], dead)
    bodies = late, _ = named("timeout"), named("denied")
    java.produce(*bodies)
    buried = {record.value(): record for record in await java.until_dead(bodies, 2)}
    assert java.consumers.got(late) == way
    await java.collect()
    first = one, other = await java.letters(*bodies)
    for letter in first:
        sent = await java.first(letter.message.body.decode())
        assert (letter.message.source, letter.message.id, letter.message.origin) == (way[0], lies(sent), lies(sent))
        assert (letter.message.enqueued_at, letter.last.at) == (at(sent), at(buried[letter.message.body]))
        assert (letter.message.key, letter.message.headers) == (b"key", tuple(OWN))
        assert (letter.last.attempt, letter.last.worker, letter.foreign) == (attempts, group, True)
    assert one.last.type == "java.lang.IllegalStateException"
    assert other.last.type == "java.nio.file.AccessDeniedException"
    assert "cannot charge" in one.last.message
    assert "java.net.SocketTimeoutException: Read timed out" in one.last.stack
    assert one.group != other.group

    report = await java.replay(one.id, other.id)
    assert (report.replay.untold, report.entries) == (2, {EntryStatus.SENT: 2})
    assert {letter.state for letter in await java.letters(*bodies)} == {State.SENT}
    await java.until_dead(bodies, 4)
    assert java.consumers.got(late) == way * 2, "none of Spring's own headers came with it"
    await java.collect()
    again = await java.letters(*bodies)
    assert [(letter.id, letter.state, letter.message) for letter in again] == [
        (letter.id, State.EXHAUSTED, letter.message) for letter in first
    ]
    assert [[failure.type for failure in letter.failures] for letter in again] == [
        [letter.last.type] * 2 for letter in first
    ]
    assert all(letter.failures[0].at < letter.failures[1].at for letter in again)
    assert (await java.report(report.replay.id)).entries == {EntryStatus.FAILED: 2}


async def test_what_kafka_connect_says_is_understood_and_it_rejoins_its_letter(make_java: MakesJava) -> None:
    sink = make_java("java-sink", "java-sink.dlq")
    bodies = broken, unfit = f"{{{named('broken')}", json.dumps({"n": named("abc")})
    sink.produce(*bodies)
    await sink.until_dead(bodies, 2)
    await sink.collect()
    one, other = await sink.letters(*bodies)
    for letter in (one, other):
        assert letter.message.origin == lies(await sink.first(letter.message.body.decode()))
        assert letter.last.type == "org.apache.kafka.connect.errors.DataException"
        assert (letter.last.worker, letter.message.headers) == ("orders-sink-0", tuple(OWN))
        assert letter.last.stack.startswith(letter.last.type)
    assert "stage VALUE_CONVERTER" in one.last.message
    assert "stage TRANSFORMATION" in other.last.message
    assert one.group != other.group
    report = await sink.replay(one.id, other.id)
    await sink.until_dead(bodies, 4)
    await sink.collect()
    again = await sink.letters(broken, unfit)
    assert [(letter.id, letter.state, len(letter.failures)) for letter in again] == [
        (one.id, State.EXHAUSTED, 2),
        (other.id, State.EXHAUSTED, 2),
    ]
    assert (await sink.report(report.replay.id)).entries == {EntryStatus.FAILED: 2}
