"""Redrive on Kafka beside a bare loop of its driver, one that gathers by key, FastStream and quixstreams.

One broker, 6 partitions, 1,000 keys, 300-byte values, one process. Each contender reads the whole topic in a group of
its own, from joining the group to its last commit.
"""

from __future__ import annotations

import asyncio
import atexit
import statistics
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace
from tests.servers.kafka import Kafka

from benchmarks.draining import drained, draining_in_batches
from benchmarks.harness import Cell, Contender, Measured, Scale, Target, in_loop, rounded, side_by_side
from benchmarks.peers import bare_kafka, faststream_kafka, quix_kafka
from redrive import Message, Policy, Redrive, immediate
from redrive.config.settings import Settings
from redrive.worker import Worker

_PARTITIONS, _KEYS, _SIZE, _BATCH = 6, 1000, 300, 500
_WAIT = 0.005
_groups = count(1)


# -- the cells -------------------------------------------------------------------------------------------------------


def noop(scale: Scale) -> Measured:
    """A handler that does nothing, beside a bare loop that does not even have one."""
    total, few = scale.of(300_000, 600), scale.of(20_000, 200)
    return _measured(
        scale,
        {
            "redrive": partial(_redrive, total),
            "confluent consume(500)": partial(_bare, total, waits=False),
            "confluent consume(500), commits waited for": partial(_bare, total, waits=True),
        },
        details=lambda: {
            "FastStream, ack first": faststream_kafka.rate(_servers(), _topic(few), _group(), few, 0.0, "ack_first"),
            "FastStream, ack each": faststream_kafka.rate(
                _servers(), _topic(few), _group(), scale.of(4_000, 200), 0.0, "ack"
            ),
            "quixstreams": quix_kafka.rate(_servers(), _topic(total), _group(), total),
        },
        messages=total,
        concurrency=10,
    )


def batch(scale: Scale) -> Measured:
    """A batch handler that does nothing with its list of 500, beside a bare loop that only counts."""
    total = scale.of(300_000, 600)
    return _measured(
        scale,
        {
            "redrive": lambda: in_loop(_drained_in_batches(total)),
            "confluent consume(500)": partial(_bare, total, waits=False),
        },
        messages=total,
        concurrency=1,
    )


def waiting(scale: Scale) -> Measured:
    """A handler that waits 5 ms, order by key intact."""
    total, few = scale.of(100_000, 600), scale.of(20_000, 200)
    return _measured(
        scale,
        {
            "redrive": partial(_redrive, total, wait=_WAIT, concurrency=500),
            "gather per key": lambda: in_loop(
                bare_kafka.gather_per_key(_servers(), _topic(total), _group(), total, _WAIT)
            ),
        },
        details=lambda: {
            "one after the other": in_loop(
                bare_kafka.one_by_one(_servers(), _topic(few), _group(), scale.of(600, 50), _WAIT)
            ),
            "FastStream, 50 workers": faststream_kafka.rate(
                _servers(), _topic(few), _group(), few, _WAIT, "ack_first", workers=50
            ),
        },
        messages=total,
        concurrency=500,
    )


def failing(scale: Scale) -> Measured:
    """One message in a hundred fails once, and is tried again in its place."""
    total = scale.of(100_000, 600)
    return _measured(
        scale,
        {
            "redrive": partial(_redrive, total, wait=0.001, concurrency=200, failing=True),
            "redrive, none fails": partial(_redrive, total, wait=0.001, concurrency=200),
        },
        messages=total,
        concurrency=200,
    )


# -- measuring -------------------------------------------------------------------------------------------------------


def _measured(
    scale: Scale, contenders: dict[str, Contender], details: Callable[[], dict[str, float]] = dict, **settings: int
) -> Measured:
    figures = side_by_side(contenders, scale.rounds, max if scale.quick else statistics.median)
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        details={name: rounded(figure) for name, figure in details().items()},
        settings={**settings, "partitions": _PARTITIONS, "keys": _KEYS, "value": _SIZE, "batch": _BATCH},
    )


def _bare(total: int, *, waits: bool) -> float:
    return bare_kafka.consume(_servers(), _topic(total), _group(), total, waits=waits)


def _redrive(total: int, wait: float = 0.0, concurrency: int = 10, failing: bool = False) -> float:
    return in_loop(_drained(total, wait, concurrency, failing))


async def _drained(total: int, wait: float, concurrency: int, failing: bool) -> float:
    settings = replace(Settings(), batch=_BATCH, concurrency=concurrency)
    app = Redrive(transport=f"kafka://{_servers()}/?group={_group()}", store="memory://", settings=settings)
    left, topic = total, _topic(total)

    @app.handler(topic, policy=Policy(attempts=3, backoff=immediate()))
    async def handle(body: bytes, message: Message) -> None:
        nonlocal left
        if wait:
            await asyncio.sleep(wait)
        if wait and _is_picked(int(body[-6:])) and failing and message.attempt == 1:
            raise ConnectionError
        left -= 1
        if not left:
            worker.stop()

    worker = Worker(app, upkeep=False)
    return await drained(app, worker, total)


async def _drained_in_batches(total: int) -> float:
    settings = replace(Settings(), batch=_BATCH)
    app = Redrive(transport=f"kafka://{_servers()}/?group={_group()}", store="memory://", settings=settings)
    return await drained(app, draining_in_batches(app, _topic(total), total, _BATCH), total)


def _is_picked(number: int) -> bool:
    """One in a hundred, of every key; asked whether they are to fail or not, so that asking makes no difference."""
    return (number + number // _KEYS) % 100 == 0


# -- the topic -------------------------------------------------------------------------------------------------------


@cache
def _server() -> Kafka:
    server = Kafka().start()
    atexit.register(server.discard)
    return server


def _servers() -> str:
    return _server().bootstrap


def _group() -> str:
    return f"bench-{next(_groups)}"


@cache
def _topic(total: int) -> str:
    """A topic with so many messages."""
    name = f"bench-{total}"
    admin: Any = AdminClient({"bootstrap.servers": _servers()})
    admin.create_topics([NewTopic(name, _PARTITIONS)])[name].result()
    options = {"enable.idempotence": True, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    producer: Any = Producer({"bootstrap.servers": _servers(), **options})
    for number in range(total):
        producer.produce(name, b"%0300d" % number, b"key-%d" % (number % _KEYS))
        if not number % 1000:
            producer.poll(0)
    producer.flush()
    return name


CELLS = (
    Cell(name="kafka/noop", unit="messages/s", measure=noop, target=Target(ratio=0.6)),
    Cell(name="kafka/batch", unit="messages/s", measure=batch, target=Target(ratio=0.6)),
    Cell(name="kafka/waiting", unit="messages/s", measure=waiting, target=Target(ratio=0.5)),
    Cell(name="kafka/failing", unit="messages/s", measure=failing, target=Target(ratio=0.9)),
)
