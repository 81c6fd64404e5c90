"""Dead streams: DlqMessages on the topic of their node, and letters in the store."""

from __future__ import annotations

import re
from datetime import datetime

from google.protobuf.message import DecodeError
from msgspec import Struct
from msgspec.structs import replace

from redrive.errors import UsageError, nearest
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.service import Service
from redrive.stores.paging import every_letter
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import error_type, retries_made
from redrive.systems.pipeline.graph import Graph, Node
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage, PipeStream
from redrive.systems.pipeline.unwrap import bare_stream
from redrive.systems.pipeline.wire import varint

UNREADABLE = "redrive-original"
"""On a DlqMessage without a stream: the bytes that are none."""
_PLACE = re.compile(r"(.+)\[\d+\]@(\d+)")
_STREAM = b"\x0a"  # field 1, with a length before it


def about(letter: Letter, node: Node) -> DlqMessage:
    """The DlqMessage, without the stream."""
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
    return message


def dlq_message(letter: Letter, node: Node) -> tuple[bytes, bool]:
    """The DlqMessage, and whether the stream is in it: as it came, byte for byte, unknown fields and all."""
    message, body = about(letter, node), bare_stream(letter.message.body)
    if not stream_in(body).stream_id:
        return _in_halves(message), False
    return _STREAM + varint(len(body)) + body + message.SerializeToString(), True


def _in_halves(message: DlqMessage) -> bytes:
    """The bytes of a DlqMessage without a stream, its numbers in the middle: a console of Kafka splits records at line
    feeds, which only numbers have, and `is_of_a_dlq` knows what is left on both sides by its words."""
    why = DlqMessage(error_type=message.error_type, error_message=message.error_message)
    numbers = DlqMessage(
        failed_at=message.failed_at, retry_count=message.retry_count, original_offset=message.original_offset
    )
    where = DlqMessage(failed_node_id=message.failed_node_id, original_topic=message.original_topic)
    return b"".join(part.SerializeToString() for part in (why, numbers, where))


def stream_in(body: bytes) -> PipeStream:
    """The stream in those bytes, which may be a DlqMessage; one without an id if there is none."""
    try:
        return PipeStream.FromString(bare_stream(body))
    except DecodeError:
        return PipeStream()


# -- replay ------------------------------------------------------------------------------------------------------------


class Chosen(Struct, frozen=True, kw_only=True):
    """Which dead streams of a node; all of them where nothing is said."""

    limit: int | None = None
    since: datetime | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in ErrorType.__members__:
            raise UsageError(f"unknown error type {self.kind!r}{nearest(self.kind, ErrorType)}")


async def dead_streams(service: Service, graph: Graph, node: Node, chosen: Chosen) -> Query:
    """Exactly the dead streams of that node that a replay would send now, the oldest first where there is a limit."""
    service.app.declare(*map(graph.topic, graph.nodes.values()), transport="pipeline")
    query = Query(
        sources=(graph.topic(node),),
        states=(State.PENDING, State.EXHAUSTED),
        since=chosen.since,
        before=service.app.clock.now(),
        code=chosen.kind,
    )
    if chosen.limit is None:
        return query
    oldest = every_letter(service.app.store.letters, query, limit=chosen.limit, oldest_first=True)
    return replace(query, ids=tuple([letter.id async for letter in oldest]))
