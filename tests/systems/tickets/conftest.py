from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.servers.fixtures import StartsServer
from tests.servers.kafka import Kafka
from tests.servers.mongodb import MongoDB
from tests.servers.redis import Redis
from tests.systems.tickets.world import World

MakesWorld = Callable[..., World]


@pytest.fixture
def make_world(
    kafka_server: Kafka,
    redis_server: Redis,
    mongodb_server: MongoDB,
    start_server: StartsServer,  # so that private servers outlive what cleans up after us
) -> Iterator[MakesWorld]:
    made: list[World] = []

    def make(**how: Any) -> World:
        servers = {"kafka": kafka_server, "redis": redis_server, "mongodb": mongodb_server}
        made.append(World(**{**servers, **how}))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def world(make_world: MakesWorld) -> World:
    return make_world()
