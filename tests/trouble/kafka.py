"""Topics of a test's own on a real Kafka, raw records in and out of them, and apps on top."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from redrive import Redrive
from redrive.testing.waiting import until
from redrive.transports.base import Transport
from redrive.transports.kafka.transport import KafkaTransport
from tests.servers.kafka import Kafka
from tests.trouble.helpers import make_app

_quiet = logging.getLogger("redrive.kafka.driver")
_numbers = itertools.count(1)
Headers = Sequence[tuple[str, bytes | None]]
MISSED_SOON = {"broker.heartbeat.interval.ms": 500, "broker.session.timeout.ms": 4000}
"""For a Kafka whose brokers are killed: others take over, and it may come back, after 4 s and not 9."""


@cache
def admin(servers: str) -> Any:
    options: dict[str, Any] = {"bootstrap.servers": servers, "logger": _quiet}
    return AdminClient(options)


@cache
def producer(servers: str) -> Any:
    """It keeps the order of what it is given even when it has to try again, as after a topic was just made."""
    options = {"bootstrap.servers": servers, "message.max.bytes": 8 << 20, "enable.idempotence": True}
    return Producer({**options, "partitioner": "murmur2_random", "logger": _quiet})


class Topic:
    """A topic that nobody else has, and a group to read it."""

    def __init__(self, server: Kafka, *, partitions: int = 3, make: bool = True, most: int = 4 << 20) -> None:
        self.servers = server.bootstrap
        self.name = f"trouble-{os.getpid()}-{next(_numbers)}"
        self.group = f"group-of-{self.name}"
        self._onlooker: Any = None
        if make:
            self.make(self.name, partitions, most)

    def make(self, name: str, partitions: int = 1, most: int = 4 << 20) -> None:
        new = NewTopic(name, partitions, config={"max.message.bytes": str(most)})
        admin(self.servers).create_topics([new])[name].result()

    def url(self, **options: str | int) -> str:
        given = {"group": self.group, "consumer.heartbeat.interval.ms": 100, **options}
        return f"kafka://{self.servers}/?" + "&".join(f"{name}={value}" for name, value in given.items())

    def app(self, directory: Path, **changes: Any) -> Redrive:
        """On this topic's Kafka, with letters in a SQLite file; `url` has more options of the transport."""
        options = changes.pop("url", {})
        store = f"sqlite:///{directory / 'letters.db'}"
        return make_app(directory, **{"transport": self.url(**options), "store": store, **changes})

    def produce(self, *records: tuple[bytes | None, bytes | None], headers: Headers = (), partition: int = -1) -> None:
        """Key and value of each, as a producer that does not know us would."""
        for key, value in records:
            producer(self.servers).produce(self.name, value, key, partition=partition, headers=list(headers))
        assert producer(self.servers).flush(30) == 0

    def records(self, name: str | None = None) -> list[Any]:
        """Everything on it now."""
        topic = name or self.name
        options = {"bootstrap.servers": self.servers, "group.id": "nobody", "enable.partition.eof": True}
        reader: Any = Consumer({**options, "logger": _quiet})
        places = [TopicPartition(topic, number, 0) for number in reader.list_topics(topic).topics[topic].partitions]
        reader.assign(places)
        found: list[Any] = []
        ended: set[int] = set()
        while len(ended) < len(places):
            for one in reader.consume(500, 1):
                if one.error() is None:
                    found.append(one)
                else:
                    assert one.error().code() == KafkaError._PARTITION_EOF, one.error()
                    ended.add(one.partition())
        reader.close()
        return found

    def committed(self) -> dict[int, int]:
        """By partition."""
        if self._onlooker is None:
            options = {"bootstrap.servers": self.servers, "group.id": self.group, "logger": _quiet}
            self._onlooker = Consumer(options)
        try:
            numbers = self._onlooker.list_topics(self.name, timeout=10).topics[self.name].partitions
            found = self._onlooker.committed([TopicPartition(self.name, number) for number in numbers], timeout=10)
        except KafkaException:  # the coordinator of its group is not ready yet
            return {}
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def shares(self) -> dict[str, int]:
        """How many partitions of it each member of the group has, by the member's `client.id`."""
        group = admin(self.servers).describe_consumer_groups([self.group])[self.group].result(timeout=60)
        return {
            member.client_id: sum(place.topic == self.name for place in member.assignment.topic_partitions)
            for member in group.members
        }

    async def until_shared(self, **shares: int) -> None:
        """The group has shared the partitions so, and nobody else has any."""

        async def are_shared() -> bool:
            return await asyncio.to_thread(self.shares) == shares

        await until(are_shared, what=f"partitions are shared: {shares}")

    async def until_committed(self, number: int) -> None:
        """The group has finished so many, over all partitions. Asked in a thread: the workers of a test go on."""

        async def are_committed() -> bool:
            return sum((await asyncio.to_thread(self.committed)).values()) == number

        await until(are_committed, timeout=120, what=f"{number} are committed")


def transport_of(app: Redrive) -> KafkaTransport:
    transport: Transport = app.transport()
    assert isinstance(transport, KafkaTransport)
    return transport
