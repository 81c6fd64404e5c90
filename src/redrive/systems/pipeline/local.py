"""Streams in one SQLite file: for a pipeline that runs on one machine, with no broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from redrive.clock import Clock, microseconds, moment
from redrive.errors import TransportUnavailable
from redrive.model import Message
from redrive.systems.pipeline.graph import Graph
from redrive.systems.pipeline.streams import Record
from redrive.transports.sqlite import SqliteTransport

_HOLDING = """
SELECT source, seq, enqueued_at, body FROM queue
WHERE source IN (SELECT value FROM json_each(?)) AND enqueued_at >= ? AND instr(body, ?)
"""
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class LocalStreams(SqliteTransport):
    """A node's DLQ is its letters in the store. What has passed a node leaves its queue; what is finished stays."""

    def __init__(self, graph: Graph, url: str, *, clock: Clock, lease: timedelta) -> None:
        super().__init__(url, clock=clock, lease=lease)
        self._graph = graph

    async def make(self, partitions: int) -> None:
        """They need no making."""

    async def outcomes(self, messages: Sequence[Message]) -> Sequence[Exception | None]:
        try:
            await self.send(messages)
        except TransportUnavailable as error:
            return [error] * len(messages)
        return [None] * len(messages)

    async def records(self, stream_id: str, since: datetime | None) -> Sequence[Record]:
        asked = (
            msgspec.json.encode(self._graph.topics).decode(),
            microseconds(since or _BEGINNING),
            stream_id.encode(),
        )
        rows = await self._read(lambda connection: connection.execute(_HOLDING, asked).fetchall())
        return [Record(source, f"{source}#{seq}", moment(at), body) for source, seq, at, body in rows]
