"""Kafka in good and bad days: order, retries, offsets, rebalances, brokers that die, records that nobody expects."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from redrive import Message, Policy, Redrive, constant
from redrive.clock import moment
from redrive.errors import UsageError
from redrive.forensics.query import Query
from redrive.model import Holds, Reason, State
from redrive.service import Service
from redrive.telemetry.events import BackendDown, BackendUp
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from redrive.transports.kafka.options import options_of
from redrive.transports.kafka.transport import KafkaTransport
from redrive.transports.kafka.wire import TOMBSTONE
from redrive.transports.kafka.writer import Parcel, TooLarge, Writer
from tests.servers.fixtures import StartsServer
from tests.servers.kafka import Kafka
from tests.servers.redis import Redis
from tests.trouble.helpers import Told, letters, until_letters, working
from tests.trouble.kafka import Topic, transport_of
from tests.trouble.order import BEGUN, DONE, Log, Watch, breaches

FOUR_TIMES = Policy(attempts=4, backoff=constant("5ms"))


async def replay_all(app: Redrive) -> None:
    service = Service(app)
    await service.run_replay((await service.replay(Query(), actor="test")).id)


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
        await clock.eventually(topic.until_committed(1))
        await until(lambda: _is_on_the_shelf(app, topic), what="its copy has arrived")
        assert handled == [1]
        await clock.advance(7 * 60)
        assert handled == [1]
        await clock.advance(60)
        await until(lambda: handled == [1, 2], what="it was tried again")


def _is_on_the_shelf(app: Redrive, topic: Topic) -> bool:
    reader = transport_of(app)._readers[topic.name]
    return any(partition.open for partition in reader.shelf.partitions.values())


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
            waits = partial(_waits, transport_of(app), topic)
            await asyncio.wait_for(failed.wait(), 30)
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


def _waits(transport: KafkaTransport, topic: Topic) -> bool:
    reader = transport._readers[topic.name]
    return any(record.tried and not record.turn for one in reader.shelf.partitions.values() for record in one.open)


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
        await until(lambda: any("redis" in one.backend for one in told.of(BackendDown)), what="it says so")
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


# -- records that nobody expects -------------------------------------------------------------------------------------


async def test_a_tombstone_is_buried_as_it_is_and_replayed_as_a_tombstone(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server)
    topic.produce((b"gone", None), headers=[("raw", b"\xff\x00"), ("raw", b"")])
    app = topic.app(tmp_path)

    @app.handler(topic.name)
    async def handle(body: dict[str, int]) -> None: ...

    async with app, working(app):
        [letter] = await until_letters(app, 1)
        await replay_all(app)
        await until(lambda: len(topic.records()) == 2, what="it was sent back")
    assert (letter.reason, letter.message.body, letter.message.key) == (Reason.UNDECODABLE, b"", b"gone")
    assert letter.message.header(TOMBSTONE) is not None
    old, new = topic.records()
    assert (new.value(), new.key(), new.partition()) == (None, b"gone", old.partition())
    assert [pair for pair in new.headers() if pair[0] == "raw"] == old.headers()


async def test_a_message_of_two_megabytes_is_handled_and_one_that_the_topic_refuses_says_so(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic, small = Topic(kafka_server), Topic(kafka_server, most=1 << 20)
    large = b"x" * (2 << 20)
    app = topic.app(tmp_path)
    sizes: list[int] = []

    @app.handler(topic.name)
    async def handle(body: bytes) -> None:
        sizes.append(len(body))

    app.declare(small.name)
    async with app, working(app):
        await app.send(topic.name, large, key="k")
        await topic.until_committed(1)
        with pytest.raises(UsageError, match=r"2,097,152 bytes: raise its `max\.message\.bytes`"):
            await app.send(small.name, large, key="k")
    assert sizes == [len(large)]


async def test_a_topic_that_is_missing_is_named_and_read_when_it_is_there(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server, make=False)
    app = topic.app(tmp_path)
    told, handled = Told(app), list[bytes]()

    @app.handler(topic.name)
    async def handle(body: bytes) -> None:
        handled.append(body)

    async with app, working(app):
        await until(lambda: bool(told.of(BackendDown)), what="it says so")
        assert f"there is no topic '{topic.name}'" in told.of(BackendDown)[0].why
        assert "create it" in told.of(BackendDown)[0].why
        topic.make(topic.name)
        topic.produce((None, b"here"))
        await until(lambda: handled == [b"here"], what="it is read")
    assert told.of(BackendUp)


async def test_a_source_that_no_topic_can_be_called_is_refused(kafka_server: Kafka, tmp_path: Path) -> None:
    app = Topic(kafka_server, make=False).app(tmp_path)
    async with app:
        with pytest.raises(UsageError, match="is no name of a Kafka topic"):
            await app.send("no/topic", b"")


# -- the dead-letter topic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("only", ["no", "yes"])
async def test_a_dead_message_is_on_the_dlq_topic_before_it_is_committed(
    kafka_server: Kafka, tmp_path: Path, only: str
) -> None:
    topic = Topic(kafka_server, partitions=1)
    dlq = f"{topic.name}.dlq"
    topic.produce((b"k", b"\xff not JSON"), headers=[("h", b"\x00")])
    app = topic.app(tmp_path, url={"dlq": dlq, "dlq_only": only})
    told = Told(app)

    @app.handler(topic.name)
    async def handle(body: dict[str, int]) -> None: ...

    async with app, working(app):
        await until(lambda: bool(told.of(BackendDown)), what="the topic is missing, and it says so")
        assert topic.committed() in ({}, {0: 0})
        assert await letters(app) == []
        topic.make(dlq)
        await topic.until_committed(1)
        stored = await letters(app)
    [record] = topic.records(dlq)
    headers = dict(record.headers())
    assert (record.key(), record.value(), headers["h"]) == (b"k", b"\xff not JSON", b"\x00")
    assert (headers["redrive-dlq-reason"], headers["redrive-dlq-attempts"]) == (b"undecodable", b"1")
    assert headers["redrive-dlq-origin"] == f"{topic.name}[0]@0".encode()
    assert len(stored) == (0 if only == "yes" else 1)


async def test_a_letter_too_large_for_the_dlq_topic_keeps_its_body_in_the_store_and_leaves_a_stub(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server, partitions=1)
    dlq = f"{topic.name}.dlq"
    topic.make(dlq, most=1 << 20)
    topic.produce((b"k", b"x" * (2 << 20)), (b"k", b"small"))
    app = topic.app(tmp_path, url={"dlq": dlq, "dlq_only": "yes"})

    @app.handler(topic.name, policy=Policy(attempts=1))
    async def handle(body: bytes) -> None:
        raise ValueError("never")

    async with app, working(app):
        await topic.until_committed(2)
        [letter] = await letters(app)
    assert letter.message.body == b"x" * (2 << 20)
    found = {dict(record.headers()).get("redrive-stub"): record.value() for record in topic.records(dlq)}
    assert found[None] == b"small"
    assert letter.id.encode() in found


async def test_what_is_beside_a_message_too_large_is_not_refused_with_it(kafka_server: Kafka, tmp_path: Path) -> None:
    """Brokers refuse whole batches: of one large message and small ones, or of small ones that are too many for one."""
    topic = Topic(kafka_server, partitions=1, most=50_000)
    writer = Writer(options_of(topic.url()))
    sizes = [100, 60_000, *[1_000] * 200]
    parcels = [Parcel(topic.name, b"x" * size, b"k", [], moment(0)) for size in sizes]
    try:
        errors = await writer.outcomes(parcels)
    finally:
        await writer.aclose()
    assert [(number, type(error)) for number, error in enumerate(errors) if error is not None] == [(1, TooLarge)]
    assert sorted(len(one.value()) for one in topic.records()) == sorted(size for size in sizes if size < 50_000)


# -- replay ----------------------------------------------------------------------------------------------------------


async def test_a_replay_goes_to_the_same_partition_with_the_same_key_and_headers_and_resolves_its_letter(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server, partitions=6)
    topic.produce((b"key", b'{"n": 1}'), headers=[("x", b"1"), ("x", b"\xff")], partition=5)
    app = topic.app(tmp_path)
    mended = asyncio.Event()

    @app.handler(topic.name, policy=Policy(attempts=1))
    async def handle(body: dict[str, int]) -> None:
        if not mended.is_set():
            raise ValueError("broken")

    async with app, working(app):
        [letter] = await until_letters(app, 1)
        mended.set()
        await replay_all(app)
        query = Query(states=(State.RESOLVED,))
        await until(lambda: _one(app, query), what="it is resolved")
    old, new = topic.records()
    assert (new.key(), new.value(), new.partition()) == (old.key(), old.value(), 5)
    assert [pair for pair in new.headers() if pair[0] == "x"] == old.headers()
    assert letter.message.id == f"{topic.name}[5]@0"


async def _one(app: Redrive, query: Query) -> bool:
    return bool(await app.store.letters.count(query))
