"""A virtual host of a real RabbitMQ, for each test its own, and a transport on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from redrive.clock import SystemClock
from redrive.transports.rabbitmq.declaring import Declaring
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.publisher import Publisher
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.servers.toxiproxy import Toxiproxy
from tests.trouble.rabbitmq.work import LEASE, Victim


@pytest.fixture
def vhost(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    name = f"trouble-{uuid4().hex[:12]}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{name}"
    web.call("PUT", place, credentials=GUEST)
    yield name
    web.call("DELETE", place, credentials=GUEST)


@pytest.fixture
def url(rabbitmq_server: RabbitMQ, vhost: str) -> str:
    return f"{rabbitmq_server.url}{vhost}?delay=200ms"


@pytest_asyncio.fixture
async def transport(url: str) -> AsyncIterator[RabbitTransport]:
    transport = open_transport(url, clock=SystemClock(), lease=LEASE)
    yield transport
    await transport.aclose()


@pytest_asyncio.fixture
async def publisher(url: str) -> AsyncIterator[Publisher]:
    """Somebody else who publishes to the queue `orders`, whatever they like."""
    options = options_of(url)
    link = Link(options)
    await Declaring(link, options).ensure("orders")
    yield Publisher(link, timedelta(minutes=2))
    await link.aclose()


@pytest.fixture
def start_victim(toxiproxy_server: Toxiproxy, rabbitmq_server: RabbitMQ, vhost: str) -> Callable[[], Victim]:
    return lambda: Victim(toxiproxy_server.proxy(rabbitmq_server.address), vhost)
