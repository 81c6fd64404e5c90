"""Dead streams: DlqMessages on the topic of their node, and letters in the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import UsageError, nearest
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.service import Service
from redrive.stores.base import Letters, Store
from redrive.stores.relayed import RelayedLetters, RelayedStore
from redrive.systems.pipeline.faults import ErrorType, error_type, retries_made
from redrive.systems.pipeline.graph import Graph, Node
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage, PipeStream
from redrive.transports.kafka.dlq import DlqLetters, grave_of
from redrive.transports.kafka.options import Options
from redrive.transports.kafka.transport import KafkaTransport
from redrive.transports.kafka.writer import Parcel

UNREADABLE = "redrive-original"
"""On a DlqMessage without a stream: the bytes that are none."""
_PLACE = re.compile(r"(.+)\[\d+\]@(\d+)")
_STREAM = b"\x0a"  # field 1, with a length before it
_PAGE = 500


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
    if not is_stream(body):
        return message.SerializeToString(), False
    return _STREAM + _varint(len(body)) + body + message.SerializeToString(), True


def is_stream(body: bytes) -> bool:
    try:
        return bool(PipeStream.FromString(body).stream_id)
    except DecodeError:
        return False


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


class PipelineTransport(KafkaTransport):
    """Kafka with one DLQ topic for each node."""

    def __init__(self, graph: Graph, options: Options, *, clock: Clock, lease: timedelta) -> None:
        super().__init__(options, clock=clock, lease=lease)
        self.graph = graph
        self.buried: list[Callable[[Node, int], None]] = []  # told how many streams of a node are dead now

    def burying(self, store: Store) -> Store:
        return RelayedStore(store, _NodeLetters(store.letters, self))

    def grave(self, letter: Letter, topic: str) -> Parcel:
        """How a dead stream looks on the topic."""
        node = self.graph.node_of(letter.message.source)
        assert node is not None
        value, has_stream = dlq_message(letter, node)
        parcel = grave_of(letter, topic)
        original = [] if has_stream else [(UNREADABLE, letter.message.body)]
        return replace(parcel, value=value, headers=[*parcel.headers, *original])


class _NodeLetters(RelayedLetters):
    """On the topic first, then in the store; in the store only where a node has no DLQ."""

    def __init__(self, letters: Letters, transport: PipelineTransport) -> None:
        super().__init__(letters)
        self._transport = transport

    async def record(self, letters: Sequence[Letter]) -> None:
        graph, writer = self._transport.graph, self._transport.writer
        for source, some in groupby(letters, key=lambda letter: letter.message.source):
            node, dead = graph.node_of(source), list(some)
            if node is None or not node.has_dlq:
                await self.behind.record(dead)
                continue
            topic = graph.dlq_topic(node)
            await DlqLetters(self.behind, writer, topic, self._transport.grave, True).record(dead)
            for told in self._transport.buried:
                told(node, len(dead))


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
    ids: list[str] = []
    after = None
    while len(ids) < limit:
        page = await service.app.store.letters.search(
            query, after=after, limit=min(_PAGE, limit - len(ids)), oldest_first=True
        )
        ids += [letter.id for letter in page.letters]
        after = page.after
        if after is None:
            break
    return replace(query, ids=tuple(ids))


def _kind(name: str) -> str:
    if name not in ErrorType.__members__:
        raise UsageError(f"unknown error type {name!r}{nearest(name, ErrorType)}")
    return name
