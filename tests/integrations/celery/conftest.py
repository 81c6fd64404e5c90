from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.celery.world import Shop
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis


@pytest.fixture(scope="module")
def on_rabbitmq(
    rabbitmq_server: RabbitMQ, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """A prefork worker on RabbitMQ, its results in Redis."""
    shop = Shop(tmp_path_factory.mktemp("shop"), rabbitmq_server.url, backend=redis_server.url)
    shop.start(concurrency=2)
    yield shop
    shop.close()


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    """A file that is not there yet: once it is, what failed succeeds."""
    return tmp_path / "mended"
