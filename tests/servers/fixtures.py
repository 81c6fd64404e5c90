"""Pytest plugin: real servers as fixtures, each started when a test first needs it and shared by the run.

A test that uses one gets the marker `servers`. `REDRIVE_SERVERS=none` leaves those tests out and says how
many; otherwise a server that is not installed fails the run.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.servers import node
from tests.servers.chromium import Chromium
from tests.servers.consul import Consul
from tests.servers.consumers import Consumers
from tests.servers.elasticmq import ElasticMQ
from tests.servers.kafka import Kafka
from tests.servers.keycloak import Keycloak
from tests.servers.mongodb import MongoDB
from tests.servers.moto import Moto
from tests.servers.needs import Needs
from tests.servers.opensearch import OpenSearch
from tests.servers.pool import S, ServerPool
from tests.servers.postgresql import PgBouncer, PostgreSQL
from tests.servers.prometheus import Alertmanager, Monitor, Prometheus
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis
from tests.servers.toxiproxy import Toxiproxy

NEEDS_OF_FIXTURE: Mapping[str, Needs] = {
    "redis_server": Redis.needs,
    "rabbitmq_server": RabbitMQ.needs,
    "kafka_server": Kafka.needs,
    "kafka_cluster": Kafka.needs,
    "java_consumers": Consumers.needs,
    "mongodb_server": MongoDB.needs,
    "mongodb_replica_set": MongoDB.needs,
    "postgresql_server": PostgreSQL.needs,
    "postgresql_url": PostgreSQL.needs,
    "pgbouncer_server": PgBouncer.needs,
    "pgbouncer_url": PgBouncer.needs,
    "opensearch_server": OpenSearch.needs,
    "elasticmq_server": ElasticMQ.needs,
    "keycloak_server": Keycloak.needs,
    "moto_server": Moto.needs,
    "consul_server": Consul.needs,
    "prometheus_server": Prometheus.needs,
    "alertmanager_server": Alertmanager.needs,
    "toxiproxy_server": Toxiproxy.needs,
    "chromium": Chromium.needs,
    "bullmq_node": node.NEEDS,
    "start_server": Needs(),
}
LEFT_OUT = pytest.StashKey[int]()
POOL = pytest.StashKey[ServerPool]()
M_co = TypeVar("M_co", bound=Monitor, covariant=True)


class StartsServer(Protocol):
    """Starts what `make` makes, and throws it away when the test is over: for tests that kill servers."""

    def __call__(self, make: Callable[[], S]) -> S: ...


class StartsMonitor(Protocol[M_co]):
    """Starts a Prometheus or an Alertmanager with a config; `files` are laid beside it."""

    def __call__(self, config: str, files: Mapping[str, str] | None = None) -> M_co: ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "servers: uses a real server (set by tests.servers, from the fixtures used)")
    config.stash[LEFT_OUT] = 0
    config.stash[POOL] = ServerPool()


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m, which may name our marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in filter(_fixtures_of, items):
        item.add_marker(pytest.mark.servers)
    if os.environ.get("REDRIVE_SERVERS") == "none":
        left_out = [item for item in items if item.get_closest_marker("servers")]
        config.hook.pytest_deselected(items=left_out)
        config.stash[LEFT_OUT] = len(left_out)
        items[:] = [item for item in items if not item.get_closest_marker("servers")]


def _fixtures_of(item: pytest.Item) -> frozenset[str]:
    return frozenset(getattr(item, "fixturenames", ())) & NEEDS_OF_FIXTURE.keys()


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    count = config.stash[LEFT_OUT]
    return [f"servers: {count} tests that need a real server are left out (REDRIVE_SERVERS=none)"] if count else []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fails the run at once, and once, rather than each test on its own."""
    used = frozenset[str]().union(*map(_fixtures_of, session.items))
    lacking = sorted({name for fixture in used for name in NEEDS_OF_FIXTURE[fixture].lacking()})
    if lacking and not session.config.option.collectonly:
        raise pytest.UsageError(
            f"{', '.join(lacking)}: missing or damaged; run make servers "
            "(or leave the tests that need them out: REDRIVE_SERVERS=none)"
        )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A shared server that died is named by the next test that wants it, not by a client's puzzling error."""
    item.config.stash[POOL].require_running(_fixtures_of(item))


@pytest.fixture(scope="session")
def server_pool(pytestconfig: pytest.Config) -> Iterator[ServerPool]:
    pool = pytestconfig.stash[POOL]
    yield pool
    pool.discard()


@pytest.fixture
def start_server() -> Iterator[StartsServer]:
    pool = ServerPool()
    yield pool.private
    pool.discard()


@pytest.fixture(scope="session")
def redis_server(server_pool: ServerPool) -> Redis:
    return server_pool.shared("redis_server", Redis)


@pytest.fixture(scope="session")
def rabbitmq_server(server_pool: ServerPool) -> RabbitMQ:
    return server_pool.shared("rabbitmq_server", RabbitMQ)


@pytest.fixture(scope="session")
def kafka_server(server_pool: ServerPool) -> Kafka:
    return server_pool.shared("kafka_server", Kafka)


@pytest.fixture(scope="session")
def kafka_cluster(server_pool: ServerPool) -> Kafka:
    return server_pool.shared("kafka_cluster", lambda: Kafka(size=3))


@pytest.fixture(scope="session")
def java_consumers(server_pool: ServerPool, kafka_server: Kafka) -> Consumers:
    return server_pool.shared("java_consumers", lambda: Consumers(kafka_server.bootstrap))


@pytest.fixture(scope="session")
def mongodb_server(server_pool: ServerPool) -> MongoDB:
    return server_pool.shared("mongodb_server", MongoDB)


@pytest.fixture(scope="session")
def mongodb_replica_set(server_pool: ServerPool) -> MongoDB:
    return server_pool.shared("mongodb_replica_set", lambda: MongoDB(replicated=True))


@pytest.fixture(scope="session")
def postgresql_server(server_pool: ServerPool) -> PostgreSQL:
    return server_pool.shared("postgresql_server", PostgreSQL)


@pytest.fixture
def postgresql_url(postgresql_server: PostgreSQL) -> str:
    """The URL of a database of the test's own."""
    return postgresql_server.new_database()


@pytest.fixture(scope="session")
def pgbouncer_server(server_pool: ServerPool, postgresql_server: PostgreSQL) -> PgBouncer:
    return server_pool.shared("pgbouncer_server", lambda: PgBouncer(postgresql_server))


@pytest.fixture
def pgbouncer_url(pgbouncer_server: PgBouncer, postgresql_url: str) -> str:
    """The URL of a database of the test's own, through PgBouncer."""
    return pgbouncer_server.through(postgresql_url)


@pytest.fixture(scope="session")
def opensearch_server(server_pool: ServerPool) -> OpenSearch:
    return server_pool.shared("opensearch_server", OpenSearch)


@pytest.fixture(scope="session")
def elasticmq_server(server_pool: ServerPool) -> ElasticMQ:
    return server_pool.shared("elasticmq_server", ElasticMQ)


@pytest.fixture(scope="session")
def keycloak_server(server_pool: ServerPool) -> Keycloak:
    return server_pool.shared("keycloak_server", Keycloak)


@pytest.fixture(scope="session")
def moto_server(server_pool: ServerPool) -> Moto:
    return server_pool.shared("moto_server", Moto)


@pytest.fixture(scope="session")
def consul_server(server_pool: ServerPool) -> Consul:
    return server_pool.shared("consul_server", Consul)


@pytest.fixture(scope="session")
def toxiproxy_server(server_pool: ServerPool) -> Toxiproxy:
    return server_pool.shared("toxiproxy_server", Toxiproxy)


@pytest.fixture(scope="session")
def prometheus_server(server_pool: ServerPool) -> StartsMonitor[Prometheus]:
    return lambda config, files=None: server_pool.private(lambda: Prometheus(config, files))


@pytest.fixture(scope="session")
def alertmanager_server(server_pool: ServerPool) -> StartsMonitor[Alertmanager]:
    return lambda config, files=None: server_pool.private(lambda: Alertmanager(config, files))


@pytest.fixture(scope="session")
def bullmq_node() -> Path:
    """The directory of node_modules with BullMQ."""
    return node.BULLMQ.path / "node_modules"


@pytest.fixture(scope="session")
def chromium() -> Chromium:
    return Chromium()
