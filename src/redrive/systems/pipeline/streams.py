"""The transport of streams between nodes: Kafka, or one SQLite file where everything runs on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from redrive.clock import Clock
from redrive.errors import ConfigError
from redrive.systems.pipeline.graph import Graph
from redrive.transports.base import Transport


class Record(Struct, frozen=True):
    """Something that lies on a topic of the graph."""

    topic: str
    place: str  # in words: `prod.finished[2]@17`
    at: datetime
    value: bytes


class Streams(Transport, Protocol):
    """A transport that knows the graph."""

    async def make(self, partitions: int) -> None:
        """Create the topics of the graph that are missing."""
        ...

    async def records(self, stream_id: str, since: datetime | None) -> Sequence[Record]:
        """The records on the topics of the graph that have this id in them, as far as they are still kept."""
        ...


def open_streams(url: str, graph: Graph, *, group: str, clock: Clock, lease: timedelta) -> Streams:
    """`kafka://…`, or `sqlite:///file.db`."""
    match url.partition("://")[0]:
        case "kafka" | "kafka+ssl":
            from redrive.systems.pipeline.kafka import KafkaStreams, options_for

            return KafkaStreams(graph, options_for(url, group), clock=clock, lease=lease)
        case "sqlite":
            from redrive.systems.pipeline.local import LocalStreams

            return LocalStreams(graph, url, clock=clock, lease=lease)
        case scheme:
            raise ConfigError(
                f"streams cannot travel on {scheme}://: pipeline.transport is kafka://host:9092 or kafka+ssl://…, "
                "or sqlite:///pipeline.db where everything runs on one machine"
            )
