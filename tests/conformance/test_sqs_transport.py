"""The transport on SQS keeps every promise: standard and FIFO queues, on ElasticMQ.

It has a clock that the test moves together with the transport's own, so hours take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import uuid4

import pytest

from redrive.clock import SystemClock
from redrive.model import Message
from redrive.testing.builders import make_message
from redrive.testing.clock import ManualClock
from redrive.testing.transports import TransportBackend, TransportSuite
from redrive.transports.base import SendStatus, Transport
from redrive.transports.sqs import open_transport
from tests.servers.elasticmq import ElasticMQ

T = TypeVar("T")


class ServerClock(ManualClock):
    """Hours pass when the test says so, for us and for the server; what waits for the server waits in real time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        return await SystemClock().wait(event, seconds)


class SqsBackend(TransportBackend):
    """Every test with a prefix of its own on the shared server."""

    largest_body = 780_000  # SQS takes 1 MiB, and base64 makes four bytes of three
    many = 100  # a request for ten each

    def __init__(self, server: ElasticMQ, options: str = "") -> None:
        self.server = server
        self.clock = self.worker_clock = ServerClock()
        self.url = f"{server.url}&wait=0&prefix=p{uuid4().hex[:12]}-{options}"

    async def open(self) -> Transport:
        return open_transport(self.url, clock=self.clock, lease=self.lease)

    async def let_pass(self, span: timedelta) -> None:
        self.server.let_pass(span)
        await self.clock.advance(span.total_seconds())

    def now(self) -> datetime:
        return self.clock.now()

    async def eventually(self, awaitable: Awaitable[T]) -> T:
        return await asyncio.wait_for(awaitable, 120)

    async def not_taken(self, transport: Transport) -> Sequence[tuple[Message, SendStatus]]:
        """Too large, and a number that nothing can carry."""
        huge = make_message(body=bytes(1_000_000))
        return [(huge, SendStatus.REFUSED), (make_message(priority=1 << 70), SendStatus.REFUSED)]


class TestElasticMQ(TransportSuite):
    @pytest.fixture
    def backend(self, elasticmq_server: ElasticMQ) -> TransportBackend:
        return SqsBackend(elasticmq_server)


class TestElasticMQFifo(TransportSuite):
    @pytest.fixture
    def backend(self, elasticmq_server: ElasticMQ) -> TransportBackend:
        return SqsBackend(elasticmq_server, "&fifo=yes")
