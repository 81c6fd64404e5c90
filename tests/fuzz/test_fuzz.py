"""A share of the fuzz in every run: `python -m tests.fuzz --cases 20000` is the whole of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz import stages
from tests.fuzz.rows import Row, table
from tests.servers.kafka import Kafka
from tests.servers.mongodb import MongoDB
from tests.servers.opensearch import OpenSearch
from tests.servers.postgresql import PostgreSQL
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

FEW = stages.cases_of(14, 120, largest=100_000)
SOME = stages.cases_of(28, 300, largest=100_000)


def assert_clean(made: Iterable[stages.Stage]) -> None:
    rows = []
    for stage in made:
        row = stage()
        rows.append(row if isinstance(row, Row) else asyncio.run(row))  # type: ignore[arg-type]
    assert all(row.is_clean for row in rows), f"\n{table(rows)}"


def test_the_same_seed_makes_the_same_messages() -> None:
    assert stages.cases_of(14, 50, largest=100_000) == FEW[:50]
    assert len({case.id for case in SOME}) == len(SOME)


def test_nothing_stops_and_nothing_is_lost_without_servers(tmp_path: Path) -> None:
    assert_clean(stages.without_servers(tmp_path, FEW))


def test_nothing_stops_and_nothing_is_lost_on_kafka(kafka_server: Kafka) -> None:
    assert_clean(stages.on_kafka(kafka_server, SOME))


def test_nothing_stops_and_nothing_is_lost_on_rabbitmq(rabbitmq_server: RabbitMQ) -> None:
    assert_clean(stages.on_rabbitmq(rabbitmq_server, SOME))


def test_nothing_stops_and_nothing_is_lost_on_redis(redis_server: Redis) -> None:
    assert_clean(stages.on_redis(redis_server, SOME))


def test_nothing_stops_and_nothing_is_lost_in_mongodb(mongodb_server: MongoDB) -> None:
    assert_clean(stages.on_mongodb(mongodb_server, FEW))


def test_nothing_stops_and_nothing_is_lost_in_opensearch(opensearch_server: OpenSearch) -> None:
    assert_clean(stages.on_opensearch(opensearch_server, FEW))


def test_nothing_stops_and_nothing_is_lost_on_postgresql(postgresql_server: PostgreSQL) -> None:
    assert_clean(stages.on_postgresql(postgresql_server, SOME))
