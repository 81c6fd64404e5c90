"""Kafka keeps every promise of a transport that its features make, on a real broker."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace

from redrive.model import Message
from redrive.testing.builders import make_message
from redrive.testing.transports import TransportBackend, TransportSuite
from redrive.transports.base import (
    Delivery,
    Depth,
    Listing,
    QueueState,
    SendResult,
    SendStatus,
    Settlement,
    Transport,
)
from redrive.transports.kafka.options import options_of
from redrive.transports.kafka.transport import KafkaTransport
from redrive.transports.kafka.writer import Writer
from tests.conformance.test_transports import ManualBackend
from tests.servers.kafka import Kafka

_numbers = itertools.count(1)


def make_topics(server: Kafka, *topics: str, partitions: int = 1) -> None:
    """With room for large messages."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    config = {"max.message.bytes": str(4 << 20)}
    for future in admin.create_topics([NewTopic(one, partitions, config=config) for one in topics]).values():
        future.result()


class SharedWriter(Writer):
    """One for all tests: a new producer takes half a second until it may write."""

    async def aclose(self) -> None:
        return None


@functools.cache
def shared_writer(servers: str) -> Writer:
    return SharedWriter(options_of(f"kafka://{servers}/"))


class Named:
    """Any text as the name of a source: a topic may have few characters only, and each test has its own."""

    def __init__(self, inner: KafkaTransport, backend: KafkaBackend) -> None:
        self.features = inner.features
        self._inner = inner
        self._topic = backend.topic

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        topic = self._topic(source)
        deliveries = await self._inner.receive(topic, limit)
        return [replace(one, message=replace(one.message, source=source)) for one in deliveries]

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        there = {id(one): self._there(one) for one in deliveries}
        lost = await self._inner.extend(list(there.values()))
        return [one for one in deliveries if there[id(one)] in lost]

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        there = [replace(one, delivery=self._there(one.delivery)) for one in settlements]
        lost = await self._inner.settle(there)
        return [one.delivery for one, other in zip(settlements, there, strict=True) if other.delivery in lost]

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        return await self._inner.send([replace(one, source=self._topic(one.source)) for one in messages])

    async def depths(self) -> dict[str, Depth]:
        return {self._topic.names[topic]: depth for topic, depth in (await self._inner.depths()).items()}

    async def set_paused(self, sources: Collection[str]) -> None:
        await self._inner.set_paused([self._topic(source) for source in sources])

    holder = ""

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        found = await self._inner.listing(self._topic(source), state=state, after=after, limit=limit)
        messages = [replace(item, message=replace(item.message, source=source)) for item in found.messages]
        return replace(found, messages=tuple(messages))

    async def check(self) -> None:
        await self._inner.check()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _there(self, delivery: Delivery) -> Delivery:
        message = delivery.message
        return replace(delivery, message=replace(message, source=self._topic(message.source)))


class Topics:
    """The topic of each name, made when it is first asked for."""

    def __init__(self, server: Kafka, prefix: str) -> None:
        self.names: dict[str, str] = {}
        self._topics: dict[str, str] = {}
        self._server = server
        self._prefix = prefix

    def __call__(self, source: str) -> str:
        if source not in self._topics:
            topic = f"{self._prefix}.{len(self._topics)}"
            make_topics(self._server, topic)
            self._topics[source], self.names[topic] = topic, source
        return self._topics[source]

    def unmade(self, source: str) -> None:
        """Nobody has made its topic."""
        topic = f"{self._prefix}.unmade"
        self._topics[source], self.names[topic] = topic, source


class KafkaBackend(ManualBackend):
    """One partition, or `send` and `receive` would have no order to speak of without keys."""

    def __init__(self, server: Kafka, counters: str) -> None:
        super().__init__()
        self.writer = shared_writer(server.bootstrap)
        prefix = f"suite-{next(_numbers)}"
        self.topic = Topics(server, prefix)
        self.url = f"kafka://{server.bootstrap}/?group={prefix}&counters={counters}&consumer.heartbeat.interval.ms=100"

    async def open(self) -> Transport:
        transport = KafkaTransport(options_of(self.url), clock=self.clock, lease=self.lease)
        transport.writer = self.writer
        return Named(transport, self)

    async def not_taken(self, transport: Transport) -> Sequence[tuple[Message, SendStatus]]:
        """One that is too large for its topic, and one whose topic is missing."""
        self.topic.unmade("unmade")
        large = make_message(body=b"x" * (5 << 20))
        return [(large, SendStatus.REFUSED), (make_message(source="unmade"), SendStatus.BUSY)]


class TestKafka(TransportSuite):
    @pytest.fixture
    def backend(self, kafka_server: Kafka, tmp_path: Path) -> TransportBackend:
        return KafkaBackend(kafka_server, f"sqlite:///{tmp_path / 'counters.db'}")
