"""Dead streams: DlqMessages on the topic of their node, and letters in the store."""

from __future__ import annotations

import re
from datetime import datetime

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from redrive.errors import UsageError, nearest
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.service import Service
from redrive.stores.paging import every_letter
from redrive.systems.pipeline.faults import ErrorType, error_type, retries_made
from redrive.systems.pipeline.graph import Graph, Node
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage, PipeStream
from redrive.systems.pipeline.wire import varint

UNREADABLE = "redrive-original"
"""On a DlqMessage without a stream: the bytes that are none."""
_PLACE = re.compile(r"(.+)\[\d+\]@(\d+)")
_STREAM = b"\x0a"  # field 1, with a length before it


def dlq_message(letter: Letter, node: Node) -> tuple[bytes, bool]:
    """The DlqMessage, and whether the stream is in it: as it came, byte for byte, unknown fields and all."""
    place = _PLACE.fullmatch(letter.message.origin)
    message = DlqMessage(
        error_type=error_type(letter),
        error_message=letter.last.message,
        retry_count=retries_made(letter.last),
        failed_node_id=node.id,
        original_topic=letter.message.source,
        original_offset=int(place[2]) if place else 0,
    )
    message.failed_at.FromDatetime(letter.last.at)
    body = letter.message.body
    if not stream_in(body).stream_id:
        return message.SerializeToString(), False
    return _STREAM + varint(len(body)) + body + message.SerializeToString(), True


def stream_in(body: bytes) -> PipeStream:
    """The stream in those bytes; one without an id if they are none."""
    try:
        return PipeStream.FromString(body)
    except DecodeError:
        return PipeStream()


# -- replay ------------------------------------------------------------------------------------------------------------


async def dead_streams(
    service: Service,
    graph: Graph,
    node: Node,
    *,
    limit: int | None = None,
    since: datetime | None = None,
    kind: str | None = None,
) -> Query:
    """Exactly the dead streams of that node that a replay would send now, the oldest first where there is a limit."""
    service.app.declare(*map(graph.topic, graph.nodes.values()), transport="pipeline")
    query = Query(
        sources=(graph.topic(node),),
        states=(State.PENDING, State.EXHAUSTED),
        since=since,
        before=service.app.clock.now(),
        code=None if kind is None else _kind(kind),
    )
    if limit is None:
        return query
    oldest = every_letter(service.app.store.letters, query, limit=limit, oldest_first=True)
    return replace(query, ids=tuple([letter.id async for letter in oldest]))


def _kind(name: str) -> str:
    if name not in ErrorType.__members__:
        raise UsageError(f"unknown error type {name!r}{nearest(name, ErrorType)}")
    return name
