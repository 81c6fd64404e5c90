"""Where a stream has been: read from the topics of the graph, which keep what travelled on them, and from letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeAlias

from google.protobuf.message import DecodeError
from msgspec import Struct

from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.model import Letter
from redrive.stores.base import Letters
from redrive.systems.pipeline.dlq import stream_in
from redrive.systems.pipeline.faults import error_type
from redrive.systems.pipeline.graph import Graph
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage, PipeStream, Step
from redrive.systems.pipeline.streams import Record, Streams
from redrive.systems.pipeline.unwrap import bare_stream

_MOST = 1000  # letters of one stream


class Sighting(Struct, frozen=True, kw_only=True):
    """The stream on one topic."""

    at: datetime
    where: str  # the node that it came to, `finished`, `DLQ of` a node, or `dead at` one that has none
    node_id: str  # empty where it is finished
    topic: str
    place: str  # there
    hops: int
    error: str = ""  # where it is dead: why


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
    """Reads the topics of the graph, and the letters of nodes on whose DLQ topic it is not found dead: a node may have
    none, the stream may be too large for it, or the topic may no longer keep it."""

    def __init__(
        self, graph: Graph, streams: Streams, letters: Callable[[], Letters], redactor: Redactor | None = None
    ) -> None:
        self._graph = graph
        self._streams = streams
        self._letters = letters
        self._masked = (redactor or Redactor()).text
        self._dead = {graph.dlq_topic(node) for node in graph.nodes.values() if node.has_dlq}

    async def trace(self, stream_id: str, *, since: datetime | None = None) -> Trace:
        records = await self._streams.records(stream_id, since)
        found = [seen for record in records if (seen := self._on_topic(record)) and _is_of(stream_id, seen)]
        seen_dead = {sighting.node_id for sighting, _ in found if sighting.error}
        buried = await self._in_letters(stream_id, since, seen_dead)
        found += [seen for seen in buried if _is_of(stream_id, seen)]
        found.sort(key=lambda seen: seen[0].at)
        return Trace(stream_id, self._passed(stream for _, stream in found), [sighting for sighting, _ in found])

    def _on_topic(self, record: Record) -> Seen | None:
        topic, error = record.topic, ""
        try:
            if topic in self._dead:
                dead = DlqMessage.FromString(record.value)
                stream, error = dead.stream, f"{dead.error_type}: {self._masked(dead.error_message)}"
                node = self._graph.nodes.get(dead.failed_node_id)
            else:
                stream, node = PipeStream.FromString(bare_stream(record.value)), self._graph.node_of(topic)
        except DecodeError:
            return None
        label = node.label if node else "an unknown node" if error else "finished"
        return Sighting(
            at=record.at,
            where=f"DLQ of {label}" if error else label,
            node_id=node.id if node else "",
            topic=topic,
            place=record.place,
            hops=stream.hop_count,
            error=error,
        ), stream

    async def _in_letters(self, stream_id: str, since: datetime | None, seen_dead: set[str]) -> list[Seen]:
        """The stream in letters of the nodes where it was not seen dead."""
        graph = self._graph
        sources = tuple(graph.topic(node) for node in graph.nodes.values() if node.id not in seen_dead)
        if not sources:
            return []
        query = Query(text=stream_id, sources=sources, since=since)
        return [self._buried(letter) for letter in (await self._letters().search(query, limit=_MOST)).letters]

    def _buried(self, letter: Letter) -> Seen:
        node, stream = self._graph.node_of(letter.message.source), stream_in(letter.message.body)
        assert node is not None
        return Sighting(
            at=letter.last.at,
            where=f"DLQ of {node.label}" if node.has_dlq else f"dead at {node.label}",
            node_id=node.id,
            topic=self._graph.dlq_topic(node) if node.has_dlq else letter.message.source,
            place=f"letter {letter.id}",
            hops=stream.hop_count,
            error=f"{error_type(letter)}: {self._masked(letter.last.message)}",
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
            error=self._masked(step.error_message),
            repeat=repeat,
        )


def _is_of(stream_id: str, seen: Seen) -> bool:
    """Whether it is that stream: its id may stand in the document of another."""
    return seen[1].stream_id == stream_id
