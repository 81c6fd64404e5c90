"""Where a stream has been: read from the topics of the graph, which keep what travelled on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeAlias

from google.protobuf.message import DecodeError
from msgspec import Struct

from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.stores.base import Letters
from redrive.systems.pipeline.dlq import stream_in
from redrive.systems.pipeline.faults import error_type
from redrive.systems.pipeline.graph import Graph
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage, PipeStream, Step
from redrive.systems.pipeline.streams import Record, Streams

_MOST = 1000  # letters of one stream


class Sighting(Struct, frozen=True, kw_only=True):
    """The stream on one topic."""

    at: datetime
    where: str  # the node that it came to, `finished`, or `DLQ of` a node
    topic: str
    place: str  # there
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


Seen: TypeAlias = tuple[Sighting, PipeStream]


class Tracer:
    """Reads the topics of the graph and, where a DLQ is no topic, the letters of its nodes."""

    def __init__(self, graph: Graph, streams: Streams, letters: Callable[[], Letters]) -> None:
        self._graph = graph
        self._streams = streams
        self._letters = letters
        nodes = graph.nodes.values()
        self._places = {graph.topic(node): node.label for node in nodes}
        self._dead = {graph.dlq_topic(node): f"DLQ of {node.label}" for node in nodes}

    async def trace(self, stream_id: str, *, since: datetime | None = None) -> Trace:
        records = await self._streams.records(stream_id, since)
        found = [one for one in map(self._on_topic, records) if one is not None]
        if not self._streams.has_dlq_topics:
            found += await self._in_letters(stream_id, since)
        seen = sorted((one for one in found if one[1].stream_id == stream_id), key=lambda one: one[0].at)
        return Trace(stream_id, self._passed(stream for _, stream in seen), [sighting for sighting, _ in seen])

    def _on_topic(self, record: Record) -> Seen | None:
        topic, error = record.topic, ""
        try:
            if topic in self._dead:
                dead = DlqMessage.FromString(record.value)
                stream, error = dead.stream, f"{dead.error_type}: {dead.error_message}"
            else:
                stream = PipeStream.FromString(record.value)
        except DecodeError:
            return None
        where = self._places.get(topic) or self._dead.get(topic) or "finished"
        return Sighting(
            at=record.at, where=where, topic=topic, place=record.place, hops=stream.hop_count, error=error
        ), stream

    async def _in_letters(self, stream_id: str, since: datetime | None) -> list[Seen]:
        query = Query(text=stream_id, sources=tuple(self._places), since=since)
        return [self._buried(letter) for letter in (await self._letters().search(query, limit=_MOST)).letters]

    def _buried(self, letter: Letter) -> Seen:
        node, stream = self._graph.node_of(letter.message.source), stream_in(letter.message.body)
        assert node is not None
        return Sighting(
            at=letter.last.at,
            where=f"DLQ of {node.label}",
            topic=self._graph.dlq_topic(node),
            place=f"letter {letter.id}",
            hops=stream.hop_count,
            error=f"{error_type(letter)}: {letter.last.message}",
        ), stream

    def _passed(self, streams: Iterable[PipeStream]) -> list[Passed]:
        steps = {
            (step.started_at.ToNanoseconds(), step.node_id, step.message_id): step
            for stream in streams
            for step in stream.history
        }
        seen: set[tuple[str, str]] = set()
        passed = []
        for _, step in sorted(steps.items()):
            name = (step.node_id, step.message_id)
            passed.append(self._pass(step, repeat=name in seen))
            seen.add(name)
        return passed

    def _pass(self, step: Step, *, repeat: bool) -> Passed:
        node = self._graph.nodes.get(step.node_id)
        started, ended = step.started_at.ToDatetime(UTC), step.ended_at.ToDatetime(UTC)
        return Passed(
            node_id=step.node_id,
            node=node.label if node else step.node_id,
            module=step.module,
            outcome=Step.Outcome.Name(step.outcome),
            hop=step.hop,
            attempt=step.attempt,
            started_at=started,
            seconds=(ended - started).total_seconds(),
            message_id=step.message_id,
            engine=step.engine,
            instance=step.instance,
            error=step.error_message,
            repeat=repeat,
        )
