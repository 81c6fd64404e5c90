"""Kafka: the order of a key, retries in place and on retry topics, and attempts that outlive their worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from redrive import Message, Policy, Redrive, constant
from redrive.model import Holds, Reason
from redrive.telemetry.events import BackendDown, BackendUp
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from tests.servers.fixtures import StartsServer
from tests.servers.kafka import Kafka
from tests.servers.redis import Redis
from tests.trouble.helpers import Told, letters, until_letters, working
from tests.trouble.kafka import Topic
from tests.trouble.order import BEGUN, DONE, Log, Watch, breaches

FOUR_TIMES = Policy(attempts=4, backoff=constant("5ms"))


def keyed(count: int, keys: int) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (number % keys), b"%d" % number) for number in range(count)]


# -- order and retries ---------------------------------------------------------------------------------------------


async def test_messages_of_a_key_stay_in_order_though_some_fail_and_keys_go_on_beside_each_other(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server)
    topic.produce(*keyed(400, 20))
    app = topic.app(tmp_path, concurrency=30, batch=50)
    log = Log()
    watch = Watch(app, log)
    running: Counter[bytes | None] = Counter()
    most = 0

    @app.handler(topic.name, policy=FOUR_TIMES)
    async def handle(number: int, message: Message) -> None:
        nonlocal most
        watch.note(message, number, BEGUN)
        running[message.key] += 1
        most = max(most, sum(running.values()))
        assert running[message.key] == 1, "two of a key at once"
        await asyncio.sleep(0.001)
        running[message.key] -= 1
        if number % 7 == 0 and message.attempt <= 1 + number % 3:
            raise ConnectionError("not yet")
        watch.note(message, number, DONE)

    async with app, working(app):
        await topic.until_committed(400)
    assert breaches(log) == []
    assert log.done == dict.fromkeys(range(400), 1), "nothing was lost to anybody, so nothing comes twice"
    assert most > 5, "keys did not go on beside each other"
    assert await letters(app) == []


async def test_a_key_that_waits_for_its_retry_holds_up_its_own_only_and_nothing_behind_it_is_committed(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server, partitions=1)
    topic.produce((b"stuck", b"0"), (b"stuck", b"1"), *[(b"other-%d" % n, b"%d" % n) for n in range(2, 100)])
    app = topic.app(tmp_path)
    handled: list[int] = []
    mended = asyncio.Event()

    @app.handler(topic.name, policy=Policy(attempts=10_000, backoff=constant("10ms")))
    async def handle(number: int) -> None:
        if number == 0 and not mended.is_set():
            raise ConnectionError("down")
        handled.append(number)

    async with app, working(app):
        await until(lambda: len(handled) == 98, what="all others are done")
        assert handled == list(range(2, 100))
        assert topic.committed() == {0: 0}
        mended.set()
        await topic.until_committed(100)
    assert handled[98:] == [0, 1]


async def test_holding_the_partition_keeps_everything_in_order(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server, partitions=1)
    topic.produce(*keyed(60, 6))
    app = topic.app(tmp_path, concurrency=10, batch=7)
    attempts: list[int] = []

    @app.handler(topic.name, policy=Policy(attempts=3, backoff=constant("5ms"), holds="partition"))
    async def handle(number: int, message: Message) -> None:
        attempts.append(number)
        if number in (3, 20) and message.attempt < 3:
            raise ConnectionError("not yet")

    async with app, working(app):
        await topic.until_committed(60)
    expected = [number for number in range(60) for _ in range(3 if number in (3, 20) else 1)]
    assert attempts == expected


async def test_retry_topics_let_what_is_behind_go_first_and_keep_attempts_and_history(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server, partitions=1)
    topic.produce(*[(b"same", b"%d" % number) for number in range(20)], headers=[("trace", b"\xff\x00")])
    app = topic.app(tmp_path, url={"retry_topics": "30ms,10m"})
    seen: list[tuple[int, int, bytes | None]] = []

    @app.handler(topic.name, policy=Policy(attempts=3, backoff=constant("20ms"), holds=Holds.NOTHING))
    async def handle(number: int, message: Message) -> None:
        seen.append((number, message.attempt, message.header("trace")))
        if number == 0:
            raise ConnectionError(f"attempt {message.attempt}")

    async with app, working(app):
        [letter] = await until_letters(app, 1)
        await topic.until_committed(20)
    first = [(number, attempt) for number, attempt, _ in seen if attempt == 1]
    assert first == [(number, 1) for number in range(20)], "the retry held up what is behind it"
    assert [attempt for number, attempt, _ in seen if number == 0] == [1, 2, 3]
    assert {trace for _, _, trace in seen} == {b"\xff\x00"}
    assert [failure.message for failure in letter.failures] == ["attempt 1", "attempt 2", "attempt 3"]
    assert (letter.message.origin, letter.message.source) == (f"{topic.name}[0]@0", topic.name)
    assert len(topic.records(f"{topic.name}.retry.30ms")) == 2


async def test_a_retry_topic_is_read_when_its_message_is_due_and_not_before(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic, clock = Topic(kafka_server, partitions=1), ManualClock()
    topic.produce((b"k", b"0"))
    app = topic.app(tmp_path, url={"retry_topics": "10m"}, clock=clock)
    handled: list[int] = []

    @app.handler(topic.name, policy=Policy(attempts=3, backoff=constant("8m"), holds="nothing"))
    async def handle(number: int, message: Message) -> None:
        handled.append(message.attempt)
        if message.attempt == 1:
            raise ConnectionError("not yet")

    async with app, working(app):
        await topic.until_committed(1)
        await until(lambda: _waits(app, topic), what="its copy has arrived")
        assert handled == [1]
        await clock.advance(7 * 60)
        assert handled == [1]
        await clock.advance(60)
        await until(lambda: handled == [1, 2], what="it was tried again")


async def _waits(app: Redrive, topic: Topic) -> bool:
    """A message is here, and not due; of a partition that we have, what is not here yet does not count as delayed."""
    depth = (await app.transport().depths()).get(topic.name)
    return depth is not None and depth.delayed > 0


async def test_without_retry_topics_what_steps_aside_is_parked_in_the_store(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server, partitions=1)
    topic.produce((b"k", b"0"), (b"k", b"1"))
    app = topic.app(tmp_path)
    handled: list[tuple[int, int]] = []

    @app.handler(topic.name, policy=Policy(attempts=3, backoff=constant("50ms"), holds="nothing"))
    async def handle(number: int, message: Message) -> None:
        handled.append((number, message.attempt))
        if number == 0 and message.attempt == 1:
            raise ConnectionError("not yet")

    async with app, working(app, upkeep=True):
        await topic.until_committed(3)
    assert handled == [(0, 1), (1, 1), (0, 2)]


# -- attempts that outlive a worker ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["sqlite", "redis"])
async def test_attempts_survive_a_restart_and_stopping_does_not_wait_for_a_retry(
    kafka_server: Kafka, redis_server: Redis, tmp_path: Path, place: str
) -> None:
    topic = Topic(kafka_server, partitions=1)
    counters = f"sqlite:///{tmp_path}/counters.db" if place == "sqlite" else redis_server.url
    topic.produce((b"a", b"0"), (b"a", b"1"), (b"b", b"2"))
    seen: list[tuple[int, int]] = []
    for _ in range(2):
        app = topic.app(tmp_path, url={"counters": counters})
        failed = asyncio.Event()

        @app.handler(topic.name, policy=Policy(attempts=3, backoff=constant("1h")))
        async def handle(number: int, message: Message, failed: asyncio.Event = failed) -> None:
            seen.append((number, message.attempt))
            if number == 0:
                failed.set()
                raise ConnectionError("down")

        async with app, working(app, grace=timedelta(seconds=30)):
            waits = partial(_waits, app, topic)
            await asyncio.wait_for(failed.wait(), 120)
            await until(lambda: (2, 1) in seen, what="the other key is done")
            await until(waits, what="its failure is settled")
    app = topic.app(tmp_path, url={"counters": counters})

    @app.handler(topic.name, policy=Policy(attempts=3, backoff=constant("1h")))
    async def works(number: int, message: Message) -> None:
        seen.append((number, message.attempt))

    async with app, working(app):
        await topic.until_committed(3)
    zeros = [attempt for number, attempt in seen if number == 0]
    assert zeros == [1, 2, 3]
    assert seen.index((1, 1)) > seen.index((0, 3)), "the one behind it went first"
    names = [letter.message.id for letter in await letters(app)]
    assert names == []


async def test_while_redis_is_away_nothing_is_delivered_committed_or_buried(
    kafka_server: Kafka, start_server: StartsServer, tmp_path: Path
) -> None:
    redis = start_server(Redis)
    topic = Topic(kafka_server, partitions=1)
    topic.produce((b"a", b"0"))
    app = topic.app(tmp_path, url={"counters": f"{redis.url}?socket_timeout=1"})
    told = Told(app)
    attempts: list[tuple[int, int]] = []

    @app.handler(topic.name, policy=Policy(attempts=2, backoff=constant("1ms")))
    async def handle(number: int, message: Message) -> None:
        attempts.append((number, message.attempt))
        if number == 0:
            if message.attempt == 1:
                redis.kill9()
            raise ConnectionError("down")

    async with app, working(app):
        await until(
            lambda: bool(attempts) and any("redis" in one.backend for one in told.of(BackendDown)), what="it says so"
        )
        topic.produce((b"b", b"1"))
        assert attempts == [(0, 1)]
        assert topic.committed() == {0: 0}
        assert await letters(app) == []
        redis.start()
        [letter] = await until_letters(app, 1)
        await topic.until_committed(2)
    assert attempts[:1] + sorted(attempts[1:]) == [(0, 1), (0, 2), (1, 1)]
    assert letter.reason is Reason.ATTEMPTS
    assert [failure.attempt for failure in letter.failures] == [1, 2]
    assert told.of(BackendUp)
