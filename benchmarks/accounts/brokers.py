"""The real brokers, each started for one account."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from tests.servers.kafka import Kafka
from tests.servers.postgresql import PostgreSQL
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

from benchmarks.accounts.orders import SOURCE

_PARTITIONS = 6


@contextmanager
def kafka(directory: Path) -> Iterator[str]:
    """Attempts are counted in a file, as they have to be for a message that kills its worker."""
    with Kafka() as server:
        admin: Any = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(SOURCE, _PARTITIONS)])[SOURCE].result()
        yield f"kafka://{server.bootstrap}/?group=accounts&counters=sqlite:///{directory}/counters.db"


@contextmanager
def rabbitmq(directory: Path) -> Iterator[str]:
    with RabbitMQ() as server:
        yield f"{server.url}?delay=100ms"


@contextmanager
def redis(directory: Path) -> Iterator[str]:
    with Redis() as server:
        yield server.url


@contextmanager
def postgresql(directory: Path) -> Iterator[str]:
    """The server is killed too, and comes back (`STRIKES`)."""
    with PostgreSQL() as server:

        def strike() -> None:
            server.kill9()
            server.start()

        STRIKES["postgresql"] = STRIKES["postgresql-exactly-once"] = strike
        yield server.new_database("accounts")


@contextmanager
def sqlite(directory: Path) -> Iterator[str]:
    yield f"sqlite:///{directory}/queue.db"


STRIKES: dict[str, Callable[[], None]] = {}
"""How the server of a broker is killed and started again, where that is a part of its account."""
BROKERS: dict[str, Callable[[Path], Any]] = {
    "kafka": kafka,
    "postgresql": postgresql,
    "postgresql-exactly-once": postgresql,
    "rabbitmq": rabbitmq,
    "redis": redis,
    "sqlite": sqlite,
}
