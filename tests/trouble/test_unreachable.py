"""A broker that is not there, or is not what the URL says, is told of soon, with what was tried and what to do.

Nothing here measures time; the net of 20 s is there because the drivers themselves would wait for half a minute.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from redrive import Redrive
from redrive.errors import TransportUnavailable, Unavailable
from redrive.telemetry.events import BackendDown, Event
from redrive.worker import Worker
from tests.servers.kafka import Kafka
from tests.servers.ports import claim_port
from tests.servers.rabbitmq import RabbitMQ

PATIENCE = 20


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of somebody who takes connections, by the kernel alone, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


async def said_by_send(url: str) -> str:
    async with Redrive(transport=url, store="memory://") as app:
        with pytest.raises(TransportUnavailable) as told:
            async with asyncio.timeout(PATIENCE):
                await app.send("orders", {})
    return str(told.value)


async def said_by_worker(url: str) -> str:
    """The first thing that a worker says of it; it goes on trying."""
    said: asyncio.Queue[str] = asyncio.Queue()
    app = Redrive(transport=url, store="memory://")

    @app.handler("orders")
    async def handle(order: dict[str, int]) -> None: ...

    def hear(event: Event) -> None:
        if isinstance(event, BackendDown):
            said.put_nowait(event.why)

    app.events.subscribe(hear)
    async with app:
        worker = Worker(app, upkeep=False)
        task = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(PATIENCE):
                return await said.get()
        finally:
            worker.stop()
            await task


async def said_by_check(url: str) -> str:
    async with Redrive(transport=url, store="memory://") as app:
        with pytest.raises(Unavailable) as told:
            async with asyncio.timeout(PATIENCE):
                await app.transport().check()
    return str(told.value)


SAID_BY = {"send": said_by_send, "worker": said_by_worker, "check": said_by_check}


@pytest.mark.parametrize("by", SAID_BY)
@pytest.mark.parametrize("scheme", ["kafka", "kafka+ssl", "amqp", "amqps"])
class TestNobodyThere:
    async def test_a_port_where_nothing_listens(self, by: str, scheme: str) -> None:
        port = claim_port()
        said = await SAID_BY[by](f"{scheme}://127.0.0.1:{port}")
        assert f"127.0.0.1:{port} refuses the connection: nothing listens there. Start it, or correct the URL" in said

    async def test_a_name_that_does_not_resolve(self, by: str, scheme: str) -> None:
        said = await SAID_BY[by](f"{scheme}://no-such-host.invalid:7")
        assert "no-such-host.invalid" in said
        assert "or correct the URL" in said

    async def test_a_port_that_takes_connections_and_says_nothing(self, by: str, scheme: str, silent: int) -> None:
        said = await SAID_BY[by](f"{scheme}://127.0.0.1:{silent}")
        tls, plain = scheme not in ("kafka", "amqp"), scheme.removesuffix("+ssl").removesuffix("s")
        hint = f"speaks no TLS: write {plain}://" if tls else "is it the right port?"
        assert f"127.0.0.1:{silent} takes connections" in said
        assert hint in said


async def test_several_servers_of_which_one_is_there_are_not_given_up(kafka_server: Kafka) -> None:
    url = f"kafka://127.0.0.1:{claim_port()},{kafka_server.bootstrap}"
    async with Redrive(transport=url, store="memory://") as app:
        await app.transport().check()


async def test_all_of_several_servers_are_named() -> None:
    first, second = claim_port(), claim_port()
    said = await said_by_check(f"kafka://127.0.0.1:{first},127.0.0.1:{second}")
    assert f"127.0.0.1:{first} refuses" in said
    assert f"127.0.0.1:{second} refuses" in said


@pytest.mark.parametrize("by", SAID_BY)
async def test_tls_to_a_kafka_that_speaks_none(kafka_server: Kafka, by: str) -> None:
    said = await SAID_BY[by](f"kafka+ssl://{kafka_server.bootstrap}")
    assert f"{kafka_server.bootstrap} takes connections and speaks no TLS: write kafka://" in said


@pytest.mark.parametrize("by", SAID_BY)
async def test_kafka_at_the_port_of_rabbitmq(rabbitmq_server: RabbitMQ, by: str) -> None:
    place = urlsplit(rabbitmq_server.url).netloc.rpartition("@")[2]
    assert f"{place} takes connections and does not answer as Kafka does" in await SAID_BY[by](f"kafka://{place}")


@pytest.mark.parametrize("by", SAID_BY)
async def test_tls_to_a_rabbitmq_that_speaks_none(rabbitmq_server: RabbitMQ, by: str) -> None:
    place = urlsplit(rabbitmq_server.url).netloc.rpartition("@")[2]
    assert f"{place} takes connections and speaks no TLS: write amqp://" in await SAID_BY[by](f"amqps://{place}")


@pytest.mark.parametrize("by", SAID_BY)
async def test_rabbitmq_at_the_port_of_kafka(kafka_server: Kafka, by: str) -> None:
    said = await SAID_BY[by](f"amqp://{kafka_server.bootstrap}")
    assert f"{kafka_server.bootstrap} takes connections and does not answer as RabbitMQ does" in said


@pytest.mark.parametrize("by", SAID_BY)
async def test_a_user_that_rabbitmq_does_not_know(rabbitmq_server: RabbitMQ, by: str) -> None:
    place = urlsplit(rabbitmq_server.url).netloc.rpartition("@")[2]
    said = await SAID_BY[by](f"amqp://nobody:hunter2@{place}/%2F")
    assert "correct user 'nobody', its password, or the virtual host '/'" in said
    assert "hunter2" not in said
