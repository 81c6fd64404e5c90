"""RabbitMQ keeps every promise of a transport (the suite is redrive.testing.transports).

Time is the clock's, but for what waits in a retry queue: that clock is the broker's. So what a test lets pass is done
to those queues by hand, as their time to live would do it; tests/trouble/rabbitmq waits for the real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import pytest

from redrive.model import Message
from redrive.testing.builders import make_message
from redrive.testing.clock import ManualClock
from redrive.testing.transports import TransportBackend, TransportSuite
from redrive.transports.base import SendStatus, Transport
from redrive.transports.rabbitmq.link import Channel, Link
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.transport import open_transport
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ

T = TypeVar("T")


class RabbitBackend(TransportBackend):
    def __init__(self, server: RabbitMQ, options: str = "") -> None:
        self.server = server
        self.clock = ManualClock()
        self.vhost = f"suite-{uuid4().hex[:12]}"
        self._vhost("PUT")
        self.url = f"{server.url.rstrip('/')}/{self.vhost}?delay=10m,1h,2h{options}"
        self._link = Link(options_of(self.url))
        self._channel: Channel | None = None

    async def open(self) -> Transport:
        return open_transport(self.url, clock=self.clock, lease=self.lease)

    async def let_pass(self, span: timedelta) -> None:
        await self.clock.advance(span.total_seconds())
        if span >= timedelta(minutes=10):
            await self._expire(span)

    async def _expire(self, span: timedelta) -> None:
        """What RabbitMQ would do by itself."""
        if self._channel is None:
            self._channel = await self._link.channel()
        place = quote(self.vhost, safe="")
        for queue in web.get(f"{self.server.management_url}/api/queues/{place}", GUEST):
            arguments = queue["arguments"]
            if arguments.get("x-message-ttl", 1 << 40) <= span / timedelta(milliseconds=1):
                await self._move(self._channel, queue["name"], arguments["x-dead-letter-routing-key"])

    async def _move(self, channel: Channel, queue: str, key: str) -> None:
        frame = await channel.call(channel.raw.queue_declare, queue, passive=True)
        for _ in range(frame.method.message_count):
            got: asyncio.Future[tuple[Any, Any, Any]] = asyncio.get_running_loop().create_future()
            channel.raw.basic_get(queue, lambda _, *found, got=got: got.set_result(found))
            method, properties, body = await got
            channel.raw.basic_publish("", key, body, properties)
            channel.raw.basic_ack(method.delivery_tag)

    async def eventually(self, awaitable: Awaitable[T]) -> T:
        return await asyncio.wait_for(awaitable, 30)

    async def not_taken(self, transport: Transport) -> Sequence[tuple[Message, SendStatus]]:
        """A queue that is at its limit, and headers that no frame of AMQP has room for."""
        place = f"{self.server.management_url}/api/policies/{self.vhost}/limit"
        definition = {"max-length": 1, "overflow": "reject-publish"}
        limit = {"pattern": "^full$", "definition": definition, "apply-to": "queues"}
        web.call("PUT", place, limit, credentials=GUEST)
        await transport.send([make_message(source="full")])
        huge = make_message(headers=(("x", b"y" * 131_000),))
        return [(make_message(source="full"), SendStatus.BUSY), (huge, SendStatus.REFUSED)]

    async def aclose(self) -> None:
        await self._link.aclose()
        self._vhost("DELETE")

    def _vhost(self, method: str) -> None:
        web.call(method, f"{self.server.management_url}/api/vhosts/{self.vhost}", credentials=GUEST)


class TestRabbitMQ(TransportSuite):
    @pytest.fixture
    def backend(self, rabbitmq_server: RabbitMQ) -> TransportBackend:
        return RabbitBackend(rabbitmq_server)
