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
from redrive.model import Letter
from redrive.systems.pipeline.dlq import UNREADABLE, dlq_message
from redrive.systems.pipeline.graph import Graph, Node
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage
from redrive.systems.pipeline.streams import Record
from redrive.transports.kafka.dlq import FORM, DeadLetterTopic, Form, record_of
from redrive.transports.kafka.driver import NAME, Consumer, KafkaException, TopicPartition, driver_log, why
from redrive.transports.kafka.options import Options, options_of
from redrive.transports.kafka.transport import KafkaTransport
from redrive.transports.kafka.writer import Parcel

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

    def dead_letter_place(self, source: str) -> DeadLetterTopic | None:
        """The DLQ topic of its node, where the node has one."""
        node = self._graph.node_of(source)
        if node is None or not node.has_dlq:
            return None
        return DeadLetterTopic(self.writer, self._graph.dlq_topic(node), form=self._form_at(node))

    async def make(self, partitions: int) -> None:
        await self.topics.make(self._graph.topics, partitions)

    async def records(self, stream_id: str, since: datetime | None) -> Sequence[Record]:
        return await asyncio.to_thread(self._read_records, stream_id.encode(), since)

    def _form_at(self, node: Node) -> Form:
        def form(letter: Letter, topic: str) -> Parcel:
            """The record of a dead stream on its topic."""
            value, has_stream = dlq_message(letter, node)
            parcel = record_of(letter, topic)
            original = [] if has_stream else [(UNREADABLE, letter.message.body)]
            kind = (FORM, DlqMessage.DESCRIPTOR.full_name.encode())
            return replace(parcel, value=value, headers=[*parcel.headers, kind, *original])

        return form

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


def _record(raw: Any) -> Record:
    return Record(
        topic=raw.topic(),
        place=f"{raw.topic()}[{raw.partition()}]@{raw.offset()}",
        at=datetime.fromtimestamp(raw.timestamp()[1] / 1000, UTC),
        value=raw.value(),
    )
