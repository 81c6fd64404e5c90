"""A virtual host of a real broker with the topology of the contract, for each test its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest_asyncio
from pika import BasicProperties

from redrive.clock import SystemClock
from redrive.systems.files.topology import topology
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.management import Management
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.publisher import Parcel, Publisher
from redrive.transports.rabbitmq.redrive import DeadMessages
from redrive.transports.rabbitmq.topology import declared
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ

OURS = "retry=reject&bury=dlq&delay=200ms"


class Broker:
    """A virtual host with the topology of the contract, with a short delay."""

    def __init__(self, server: RabbitMQ) -> None:
        self.server = server
        self.vhost = f"files-{uuid4().hex[:12]}"
        self.url = f"{server.url.rstrip('/')}/{self.vhost}?{OURS}"
        self.link = Link(options_of(self.url))
        self.publisher = Publisher(self.link, timedelta(seconds=20))

    async def begin(self) -> None:
        web.call("PUT", f"{self.server.management_url}/api/vhosts/{self.vhost}", credentials=GUEST)
        management = Management(self.server.management_url, vhost=self.vhost)
        await management.apply(declared(topology(delay="200ms")))
        await management.aclose()

    async def end(self) -> None:
        await self.link.aclose()
        web.call("DELETE", f"{self.server.management_url}/api/vhosts/{self.vhost}", credentials=GUEST)

    async def publish(self, key: str, body: bytes, exchange: str = "domain.events", **properties: Any) -> None:
        known: dict[str, Any] = {"message_id": uuid4().hex, "delivery_mode": 2, **properties}
        await self.publisher.publish([Parcel(exchange, key, BasicProperties(**known), body)])

    async def count(self, queue: str) -> int:
        channel = await self.link.channel()
        frame = await channel.call(channel.raw.queue_declare, queue, passive=True)
        await channel.close()
        return int(frame.method.message_count)


@pytest_asyncio.fixture
async def broker(rabbitmq_server: RabbitMQ) -> AsyncIterator[Broker]:
    broker = Broker(rabbitmq_server)
    await broker.begin()
    yield broker
    await broker.end()


@pytest_asyncio.fixture
async def parkings(broker: Broker) -> AsyncIterator[DeadMessages]:
    found = DeadMessages(options_of(broker.url), SystemClock())
    yield found
    await found.aclose()
