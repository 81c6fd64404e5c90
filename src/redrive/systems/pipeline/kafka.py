"""Streams on Kafka: one input topic and one DLQ topic for each node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.flow.lineage import sent_back
from redrive.systems.pipeline.dlq_topic import KIND, DlqTopic
from redrive.systems.pipeline.graph import Graph
from redrive.systems.pipeline.streams import Record
from redrive.systems.pipeline.unwrap import unwrapped
from redrive.transports.base import Delivery
from redrive.transports.kafka.dlq import FORM, letter_in
from redrive.transports.kafka.driver import NAME, Consumer, KafkaException, TopicPartition, driver_log, why
from redrive.transports.kafka.options import Options, options_of
from redrive.transports.kafka.transport import KafkaTransport

_PATIENCE = 30.0
_AT_ONCE = 1000
_LOOK = 0.1  # seconds that it waits for as many, though everything may be there


def options_for(url: str, group: str) -> Options:
    """The options of Kafka for streams: nothing waits in the producer, because the outbox makes batches itself."""
    given = options_of(url)
    return replace(given, group=group, driver={"producer.linger.ms": "0", **given.driver})


class KafkaStreams(KafkaTransport):
    """Kafka with one DLQ topic for each node."""

    def __init__(self, graph: Graph, options: Options, *, clock: Clock, lease: timedelta) -> None:
        super().__init__(options, clock=clock, lease=lease)
        self._graph = graph

    def dead_letter_place(self, source: str) -> DlqTopic | None:
        """The DLQ topic of its node, where the node has one."""
        node = self._graph.node_of(source)
        return DlqTopic(self.writer, self._graph.dlq_topic(node), node) if node is not None and node.has_dlq else None

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        """Streams; one that was copied here from a DLQ topic, headers and all, is what a replay would have sent."""
        deliveries = await super().receive(source, limit)
        return [_sent_back(delivery) if delivery.message.headers else delivery for delivery in deliveries]

    async def make(self, partitions: int) -> None:
        await self.topics.make(self._graph.topics, partitions)

    async def records(self, stream_id: str, since: datetime | None) -> Sequence[Record]:
        await self.topics.check()
        return await asyncio.to_thread(self._read_records, stream_id.encode(), since)

    # -- what the topics hold --------------------------------------------------------------------------------------

    def _read_records(self, text: bytes, since: datetime | None) -> Sequence[Record]:
        consumer = Consumer(
            {
                **self.options.client(),
                "group.id": "redrive-trace",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "fetch.wait.max.ms": "10",  # the end of a partition is told when a fetch of it has nothing
                "logger": driver_log,
            }
        )
        try:
            return [_record(raw) for raw in self._raw(consumer, since) if text in (raw.value() or b"")]
        except KafkaException as error:
            raise TransportUnavailable(NAME, why(error, self.options.servers)) from error
        finally:
            consumer.close()

    def _raw(self, consumer: Any, since: datetime | None) -> Iterator[Any]:
        left = self._assign(consumer, since)
        last = time.monotonic()
        while left:
            for raw in consumer.consume(_AT_ONCE, timeout=_LOOK):
                last = time.monotonic()
                place = (raw.topic(), raw.partition())
                if raw.error() is not None:
                    left.discard(place)  # its end, or nothing that could be read
                elif place in left:
                    yield raw
            if time.monotonic() - last > _PATIENCE:
                raise TransportUnavailable(NAME, f"no answer within {_PATIENCE:g} s")

    def _assign(self, consumer: Any, since: datetime | None) -> set[tuple[str, int]]:
        known = consumer.list_topics(timeout=_PATIENCE).topics
        start = 0 if since is None else int(since.timestamp() * 1000)
        places = [
            TopicPartition(topic, number, start)
            for topic in self._graph.topics
            if topic in known
            for number in known[topic].partitions
        ]
        begun = consumer.offsets_for_times(places, timeout=_PATIENCE) if places else []
        consumer.assign(begun)
        return {(place.topic, place.partition) for place in begun}


def _sent_back(delivery: Delivery) -> Delivery:
    message = delivery.message
    letter = letter_in(message.headers, message) if message.header(FORM) == KIND[1] else None
    body = None if letter is None or letter.message.source != message.source else unwrapped(message.body)
    if letter is None or body is None:
        return delivery
    back = sent_back(replace(letter, message=replace(letter.message, body=body)), now=message.enqueued_at, by_hand=True)
    headers = tuple(pair for pair in back.headers if pair[0] != FORM)
    return replace(delivery, message=replace(back, headers=headers, attempt=1 + delivery.token[0].tried))


def _record(raw: Any) -> Record:
    return Record(
        topic=raw.topic(),
        place=f"{raw.topic()}[{raw.partition()}]@{raw.offset()}",
        at=datetime.fromtimestamp(raw.timestamp()[1] / 1000, UTC),
        value=raw.value(),
    )
