"""Kafka: a dead-letter topic that is missing or away. The attempt stays counted, and is not made again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from redrive import Message, Policy, constant
from redrive.doctor.examine import examine
from redrive.doctor.findings import Level
from redrive.model import Reason
from redrive.telemetry.events import BackendDown
from redrive.testing.waiting import until
from redrive.transports.kafka.counters import open_counters
from tests.servers.kafka import Kafka
from tests.trouble.helpers import Told, letters, until_letters, working
from tests.trouble.kafka import Topic

THRICE = Policy(attempts=3, backoff=constant("5ms"))


async def test_a_dead_letter_topic_that_is_missing_is_named_and_costs_no_attempt(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server, partitions=1)
    dlq, counters = f"{topic.name}.dlq", f"sqlite:///{tmp_path}/counters.db"
    topic.produce((b"a", b"0"), (b"b", b"1"))
    options = {"dlq": dlq, "counters": counters, "producer.topic.metadata.propagation.max.ms": 100}
    runs = Counter[tuple[int, int]]()
    for is_missing in (True, False):
        app = topic.app(tmp_path, url=options)
        told = Told(app)

        @app.handler(topic.name, policy=THRICE)
        async def handle(number: int, message: Message) -> None:
            runs[number, message.attempt] += 1
            if number == 0:
                raise ConnectionError("down")

        if not is_missing:
            topic.make(dlq)
        async with app, working(app):
            if is_missing:
                await until(lambda: len(told.of(BackendDown)) >= 2, what="it was tried in vain")  # noqa: B023
                [why] = {event.why for event in told.of(BackendDown)}
                assert dlq in why
                assert "create" in why
                assert await _count(counters, f"{topic.name}[0]@0") == 3
            else:
                await until_letters(app, 1)
                await topic.until_committed(2)
                [letter] = await letters(app)
    assert runs == {(0, 1): 1, (0, 2): 1, (0, 3): 1, (1, 1): 1}, "nothing is done again, by no worker"
    assert letter.reason in (Reason.ATTEMPTS, Reason.CRASHED)
    assert len(topic.records(dlq)) == 1
    assert await _count(counters, f"{topic.name}[0]@0") == 0


async def test_the_doctor_names_topics_that_are_missing(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server, partitions=1)
    dlq = f"{topic.name}.dlq"
    app = topic.app(tmp_path, url={"dlq": dlq})

    @app.handler(topic.name)
    async def handle(number: int) -> None: ...

    async with app:
        [missing] = [finding for finding in (await examine(app)).findings if finding.level is Level.FAILURE]
        assert missing.about == "transports.default"
        assert f"topic {dlq}" in missing.text
        assert "create" in missing.mend
        topic.make(dlq)
        assert not [finding for finding in (await examine(app)).findings if finding.level is Level.FAILURE]


async def _count(url: str, name: str) -> int:
    counters = open_counters(url)
    try:
        [number] = await counters.get([name])
        return number
    finally:
        await counters.aclose()
