"""A virtual host of a real RabbitMQ, for each test its own, and a transport on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
import pytest_asyncio

from redrive.clock import SystemClock
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.trouble.rabbitmq.work import LEASE


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
