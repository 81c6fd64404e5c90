"""`--processes 2` with processes killed at random under load: nothing is lost on any broker, repeats are counted."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from benchmarks.accounts.account import Account, account
from benchmarks.accounts.orders import SOURCE

from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis
from tests.trouble.kafka import Topic

KILLS, PROCESSES, BATCH = 3, 2, 25
HELD = 2 * 50
"""What a process may have in hand: twice its concurrency. On Kafka a start can repeat as much: partitions move."""


async def _account(broker: str, url: str, directory: Path, source: str = SOURCE) -> Account:
    return await account(
        broker,
        url,
        directory,
        source=source,
        messages=1000,
        kills=KILLS,
        batch=BATCH,
        seed=37,
        processes=PROCESSES,
    )


def _is_right(found: Account) -> None:
    assert (found.lost, found.left, found.crashed) == (0, 0, 0)
    assert found.letters == 10
    assert found.repeats <= HELD * (KILLS + PROCESSES)


async def test_on_sqlite(tmp_path: Path) -> None:
    _is_right(await _account("sqlite", f"sqlite:///{tmp_path}/queue.db", tmp_path))


async def test_on_redis(redis_server: Redis, tmp_path: Path) -> None:
    _is_right(await _account("redis", redis_server.url, tmp_path, f"processes-{uuid4().hex}"))


async def test_on_rabbitmq(rabbitmq_server: RabbitMQ, tmp_path: Path) -> None:
    _is_right(await _account("rabbitmq", f"{rabbitmq_server.url}?delay=100ms", tmp_path, f"processes-{uuid4().hex}"))


async def test_on_kafka_where_each_keeps_its_name(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server, partitions=6)
    url = topic.url(counters=f"sqlite:///{tmp_path}/counters.db")
    _is_right(await _account("kafka", url, tmp_path, topic.name))
