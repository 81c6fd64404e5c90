"""Streams in one SQLite file: for a pipeline that runs on one machine, with no broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.clock import Clock
from redrive.systems.pipeline.graph import Graph
from redrive.systems.pipeline.streams import Record
from redrive.transports.sqlite import SqliteTransport


class LocalStreams(SqliteTransport):
    """A node's DLQ is its letters in the store. What has passed a node leaves its queue; what is finished stays."""

    def __init__(self, graph: Graph, url: str, *, clock: Clock, lease: timedelta) -> None:
        super().__init__(url, clock=clock, lease=lease)
        self._graph = graph

    async def make(self, partitions: int) -> None:
        """Nothing: queues in SQLite need not be created."""

    async def records(self, stream_id: str, since: datetime | None) -> Sequence[Record]:
        return [
            Record(topic, f"{topic}#{message.id}", message.enqueued_at, message.body)
            for topic in self._graph.topics
            for message in await self.find(topic, containing=stream_id.encode(), since=since)
        ]
