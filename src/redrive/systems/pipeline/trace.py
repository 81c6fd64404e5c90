"""Where a stream has been: read from the topics of the graph, which keep what travelled on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import DecodeError
from msgspec import Struct

from redrive.errors import TransportUnavailable
from redrive.systems.pipeline.graph import Graph
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage, PipeStream, Step
from redrive.transports.kafka.driver import NAME, Consumer, KafkaException, TopicPartition, driver_log, why
from redrive.transports.kafka.options import Options

_PATIENCE = 30.0
_AT_ONCE = 1000


class Sighting(Struct, frozen=True, kw_only=True):
    """The stream on one topic."""

    at: datetime
    where: str  # the node that it came to, `finished`, or `DLQ of` a node
    topic: str
    partition: int
    offset: int
    hops: int
    error: str = ""  # on a DLQ: why


class Passed(Struct, frozen=True, kw_only=True):
    """One node's work on it."""

    node_id: str
    node: str
    module: str
    outcome: str
    hop: int
    attempt: int
    started_at: datetime
    seconds: float
    message_id: str
    engine: str
    instance: str
    error: str = ""
    repeat: bool = False  # done before, by an engine that crashed before it could say so


class Trace(Struct, frozen=True):
    """Everything that is known of a stream, the oldest first."""

    stream_id: str
    steps: list[Passed]
    sightings: list[Sighting]


class Tracer:
    """Reads every topic of the graph from that time on."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self._graph = graph
        self._options = options
        nodes = graph.nodes.values()
        self._places = {graph.topic(node): node.label for node in nodes}
        self._dead = {graph.dlq_topic(node): f"DLQ of {node.label}" for node in nodes}

    async def trace(self, stream_id: str, *, since: datetime | None = None) -> Trace:
        return await asyncio.to_thread(self._trace, stream_id, since)

    def _trace(self, stream_id: str, since: datetime | None) -> Trace:
        consumer = Consumer(
            {
                **self._options.client(),
                "group.id": "redrive-trace",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "logger": driver_log,
            }
        )
        sightings: list[Sighting] = []
        steps: dict[tuple[str, str, int], Step] = {}
        try:
            for raw in self._records(consumer, since):
                found = self._seen(raw, stream_id)
                if found is None:
                    continue
                sighting, stream = found
                sightings.append(sighting)
                for step in stream.history:
                    steps[step.node_id, step.message_id, step.started_at.ToNanoseconds()] = step
        except KafkaException as error:
            raise TransportUnavailable(NAME, why(error, self._options.servers)) from error
        finally:
            consumer.close()
        return Trace(stream_id, self._passed(steps), sorted(sightings, key=lambda one: one.at))

    def _records(self, consumer: Any, since: datetime | None) -> Iterator[Any]:
        left = self._assign(consumer, since)
        last = time.monotonic()
        while left:
            for raw in consumer.consume(_AT_ONCE, timeout=1.0):
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
        return {(one.topic, one.partition) for one in begun}

    def _seen(self, raw: Any, stream_id: str) -> tuple[Sighting, PipeStream] | None:
        value: bytes = raw.value() or b""
        if stream_id.encode() not in value:
            return None
        topic, error = raw.topic(), ""
        try:
            if topic in self._dead:
                dead = DlqMessage.FromString(value)
                stream, error = dead.stream, f"{dead.error_type}: {dead.error_message}"
            else:
                stream = PipeStream.FromString(value)
        except DecodeError:
            return None
        if stream.stream_id != stream_id:
            return None
        where = self._places.get(topic) or self._dead.get(topic) or "finished"
        return (
            Sighting(
                at=datetime.fromtimestamp(raw.timestamp()[1] / 1000, UTC),
                where=where,
                topic=topic,
                partition=raw.partition(),
                offset=raw.offset(),
                hops=stream.hop_count,
                error=error,
            ),
            stream,
        )

    def _passed(self, steps: dict[tuple[str, str, int], Step]) -> list[Passed]:
        seen: set[tuple[str, str]] = set()
        passed = []
        for (node_id, message_id, _), step in sorted(steps.items(), key=lambda one: one[0][2]):
            node = self._graph.nodes.get(node_id)
            started, ended = step.started_at.ToDatetime(UTC), step.ended_at.ToDatetime(UTC)
            passed.append(
                Passed(
                    node_id=node_id,
                    node=node.label if node else node_id,
                    module=step.module,
                    outcome=Step.Outcome.Name(step.outcome),
                    hop=step.hop,
                    attempt=step.attempt,
                    started_at=started,
                    seconds=(ended - started).total_seconds(),
                    message_id=message_id,
                    engine=step.engine,
                    instance=step.instance,
                    error=step.error_message,
                    repeat=(node_id, message_id) in seen,
                )
            )
            seen.add((node_id, message_id))
        return passed
