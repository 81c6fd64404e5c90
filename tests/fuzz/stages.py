"""Every stage that a hostile message can reach, on the servers that are given."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from msgspec.structs import replace
from redis import Redis as RedisClient

from redrive.collect.kafka import KafkaReader
from redrive.collect.rabbitmq import RabbitReader
from redrive.model import Letter
from redrive.stores.redis import RedisStore
from redrive.stores.shape import Shape
from redrive.stores.sqlite import SqliteStore
from redrive.systems.email.shape import EmailShape
from redrive.systems.pipeline.reader import PipelineReader
from redrive.systems.tickets.reader import TicketReader
from redrive.systems.tickets.shape import TicketShape
from redrive.systems.tickets.ticket import as_ticket
from redrive.systems.workflow.shape import WORKFLOW
from redrive.systems.workflow.task import METADATA, POLICY
from redrive.testing.hostile import Hostile, hostile
from tests.fuzz.kept import collect_stage, store_stage, transfer_stage
from tests.fuzz.rows import Row
from tests.fuzz.shown import api_stage, cli_stage, yaml_stage
from tests.fuzz.workers import by_producer, by_publisher, by_transport, worker_stage
from tests.servers.kafka import Kafka
from tests.servers.mongodb import MongoDB
from tests.servers.opensearch import OpenSearch
from tests.servers.postgresql import PostgreSQL
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis
from tests.trouble.kafka import Topic

Cases: TypeAlias = Sequence[Hostile]
Stage: TypeAlias = Callable[[], Row | Awaitable[Row]]
_LARGEST_JOB = 20_000
_numbers = count(1)


def _name() -> str:
    return f"fuzz-{os.getpid()}-{next(_numbers)}"


def _ticket(letter: Letter) -> Letter:
    return as_ticket(letter, "orders")


def cases_of(seed: int, count: int, *, largest: int) -> Cases:
    return list(hostile(seed, count, largest=largest, names=(METADATA, POLICY)))


def without_servers(place: Path, cases: Cases) -> Iterator[Stage]:
    """What needs nothing but a directory."""
    yield lambda: worker_stage("memory", "memory://", "orders", cases, by_transport)
    yield lambda: worker_stage("SQLite", f"sqlite:///{place / 'queue.db'}", "orders", cases, by_transport)
    yield lambda: store_stage("memory", "memory://", cases)
    yield lambda: store_stage("SQLite", f"sqlite:///{place / 'letters.db'}", cases)
    yield lambda: store_stage("SQLite, tickets", _sqlite(place, TicketShape()), cases, _ticket)
    yield lambda: store_stage("SQLite, workflow", _sqlite(place, WORKFLOW), cases)
    yield lambda: collect_stage("Kafka", KafkaReader("orders.dlt"), cases)
    yield lambda: collect_stage("tickets", TicketReader("orders.dlt"), cases)
    yield lambda: collect_stage("pipeline", PipelineReader("orders.dlt"), cases)
    yield lambda: transfer_stage(cases)
    yield lambda: yaml_stage(place, cases)
    yield lambda: api_stage(place, cases)
    yield lambda: cli_stage(place, cases)


def _sqlite(place: Path, shape: Shape) -> SqliteStore:
    return SqliteStore(f"sqlite:///{place / f'{shape.name}.db'}", shape=shape)


def on_redis(server: Redis, cases: Cases) -> Iterator[Stage]:
    name = _name()
    url = f"{server.url}?prefix={name}"
    jobs = [replace(case, body=case.body[:_LARGEST_JOB]) for case in cases]  # the memory of a test's Redis is small
    yield lambda: worker_stage("Redis", url, "orders", cases, by_transport)
    _sweep(server, name)
    yield lambda: store_stage("Redis", url, cases)
    _sweep(server, name)
    yield lambda: store_stage("Redis, email", RedisStore(url, shape=EmailShape(), entries=name), jobs)
    _sweep(server, name)


def _sweep(server: Redis, name: str) -> None:
    """Make room for the next stage."""
    with RedisClient.from_url(server.url) as client:
        for key in client.scan_iter(f"*{name}*", count=1000):
            client.unlink(key)


def on_kafka(server: Kafka, cases: Cases) -> Iterator[Stage]:
    topic = Topic(server)
    yield lambda: worker_stage("Kafka", topic.url(), topic.name, cases, by_producer(topic))


def on_rabbitmq(server: RabbitMQ, cases: Cases) -> Iterator[Stage]:
    queue = _name()
    yield lambda: worker_stage("RabbitMQ", server.url, queue, cases, by_publisher(server.url, queue))
    dead = f"{_name()}.dlq"
    send = by_publisher(server.url, dead)
    yield lambda: collect_stage("RabbitMQ", RabbitReader(dead), cases, url=server.url, source=dead, send=send)


def on_mongodb(server: MongoDB, cases: Cases) -> Iterator[Stage]:
    yield lambda: store_stage("MongoDB", f"{server.url}fuzz_{uuid4().hex[:8]}", cases)
    yield lambda: store_stage("MongoDB, tickets", f"tickets+{server.url}fuzz_{uuid4().hex[:8]}", cases, _ticket)


def on_opensearch(server: OpenSearch, cases: Cases) -> Iterator[Stage]:
    address = f"opensearch://{server.address}"
    yield lambda: store_stage("OpenSearch", f"{address}/{_name()}?timeout=60s", cases)
    yield lambda: store_stage("OpenSearch, workflow", f"workflow+{address}/{_name()}?timeout=60s", cases)


def on_postgresql(server: PostgreSQL, cases: Cases) -> Iterator[Stage]:
    yield lambda: worker_stage("PostgreSQL", server.new_database(), "orders", cases, by_transport)
    yield lambda: store_stage("PostgreSQL", server.new_database(), cases)
