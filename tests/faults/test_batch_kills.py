"""A worker that is killed in the middle of a batch loses nothing; a message that kills it takes no other one along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from redrive.model import Reason
from tests.faults.batch_worker import DEADLY, SIZE, Orders, account
from tests.faults.test_rabbitmq_kills import Hosts
from tests.servers.kafka import Kafka
from tests.servers.redis import Redis
from tests.trouble.kafka import Topic
from tests.trouble.redis_queue import private_url

NAMES = [f"{number:03}" for number in range(220)]
Sends = Callable[[list[str]], Awaitable[Orders]]


@pytest.fixture
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    hosts = Hosts(request.getfixturevalue("rabbitmq_server"))
    yield hosts
    hosts.remove()


@pytest.fixture(params=["sqlite", "redis", "rabbitmq", "kafka"])
def send(request: pytest.FixtureRequest, tmp_path: Path) -> Sends:
    """Sends messages of these names; the orders of a worker for them."""

    async def through_redrive(url: str, names: list[str]) -> Orders:
        orders = Orders(str(tmp_path), url, "orders", len(names))
        async with orders.app() as app:
            await app.send_messages([app.message("orders", name, id=name) for name in names])
        return orders

    async def through_kafka(names: list[str]) -> Orders:
        """As somebody else's producer would, so that they come in blocks."""
        kafka: Kafka = request.getfixturevalue("kafka_server")
        topic = Topic(kafka, partitions=2)
        topic.produce(*[(f"key-{number % 20}".encode(), name.encode()) for number, name in enumerate(names)])
        url = topic.url(counters=f"sqlite:///{tmp_path}/counters.db")
        return Orders(str(tmp_path), url, topic.name, len(names))

    async def sent(names: list[str]) -> Orders:
        match request.param:
            case "sqlite":
                return await through_redrive(f"sqlite:///{tmp_path}/queue.db", names)
            case "redis":
                redis: Redis = request.getfixturevalue("redis_server")
                return await through_redrive(private_url(redis.url), names)
            case "rabbitmq":
                hosts: Hosts = request.getfixturevalue("hosts")
                return await through_redrive(hosts.url(), names)
            case _:
                return await through_kafka(names)

    return sent


async def test_a_kill_in_the_middle_of_a_batch_loses_nothing(send: Sends, tmp_path: Path) -> None:
    orders = await send(NAMES)
    found = await account(Orders(orders.directory, orders.transport, orders.source, orders.total, dies_in=2))
    assert found.starts == 2
    assert found.done.keys() == set(NAMES)
    assert found.letters == ()
    assert max(found.done.values()) <= 2
    assert sum(found.done.values()) - len(NAMES) <= 5 * SIZE, "more was repeated than a worker holds"


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_message_that_kills_its_worker_is_buried_and_no_other(
    send: Sends, tmp_path: Path, attempts: int
) -> None:
    orders = await send([*NAMES[:120], DEADLY, *NAMES[120:]])
    told = Orders(orders.directory, orders.transport, orders.source, orders.total, attempts=attempts)
    found = await account(told)
    assert found.done.keys() == set(NAMES)
    [letter] = found.letters
    assert (letter.message.body, letter.reason) == (DEADLY.encode(), Reason.CRASHED)
