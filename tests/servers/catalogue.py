"""Every server there is, by name. A new one is a file beside this and a line here."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.servers import (
    consul,
    consumers,
    elasticmq,
    kafka,
    keycloak,
    mongodb,
    node,
    opensearch,
    opensearch_parts,
    toxiproxy,
)
from tests.servers.base import Lifecycle
from tests.servers.chromium import Chromium
from tests.servers.needs import Needs
from tests.servers.postgresql import PgBouncer, PostgreSQL
from tests.servers.prometheus import Alertmanager, Prometheus
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis


@dataclass(frozen=True)
class Entry:
    """What a server needs, its version, and how to start one with nothing but defaults."""

    needs: Needs
    version: str
    start: Callable[[], Lifecycle] | None = None


DEBIAN = "Debian's"

# The quick ones first: whoever installs sees most of it work before the long builds begin.
CATALOGUE: dict[str, Entry] = {
    "redis": Entry(Redis.needs, DEBIAN, Redis),
    "rabbitmq": Entry(RabbitMQ.needs, DEBIAN, RabbitMQ),
    "postgresql": Entry(PostgreSQL.needs, DEBIAN, PostgreSQL),
    "pgbouncer": Entry(PgBouncer.needs, DEBIAN),
    "prometheus": Entry(Prometheus.needs, DEBIAN, Prometheus),
    "alertmanager": Entry(Alertmanager.needs, DEBIAN, Alertmanager),
    "chromium": Entry(Chromium.needs, DEBIAN),
    "bullmq": Entry(node.NEEDS, node.VERSION),
    "mongodb": Entry(mongodb.MongoDB.needs, mongodb.VERSION, lambda: mongodb.MongoDB(replicated=True)),
    "kafka": Entry(kafka.Kafka.needs, kafka.VERSION, kafka.Kafka),
    "consumers": Entry(consumers.Consumers.needs, consumers.VERSION),
    "opensearch": Entry(opensearch.OpenSearch.needs, opensearch_parts.VERSION, opensearch.OpenSearch),
    "elasticmq": Entry(elasticmq.ElasticMQ.needs, elasticmq.VERSION, elasticmq.ElasticMQ),
    "keycloak": Entry(keycloak.Keycloak.needs, keycloak.VERSION, keycloak.Keycloak),
    "toxiproxy": Entry(toxiproxy.Toxiproxy.needs, toxiproxy.VERSION, toxiproxy.Toxiproxy),
    "consul": Entry(consul.Consul.needs, consul.VERSION, consul.Consul),
}
