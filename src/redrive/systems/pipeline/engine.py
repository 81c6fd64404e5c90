"""The engine: takes streams from Kafka, has them processed by their node's module, and sends them on.

A node is a handler on `{cluster}.{node}`; its retries, its letters and its replays are those of every other handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime
from hashlib import blake2b
from typing import Any
from uuid import uuid4

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace

from redrive.app import Redrive
from redrive.clock import Clock, SystemClock, microseconds
from redrive.config.load import load
from redrive.config.settings import Settings
from redrive.errors import ConfigError, MessageTooLarge
from redrive.model import Message
from redrive.stores.base import Store
from redrive.systems.pipeline.caller import Caller
from redrive.systems.pipeline.consul import Watch
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import NodeFault
from redrive.systems.pipeline.graph import Graph, Node
from redrive.systems.pipeline.outbox import Outbox
from redrive.systems.pipeline.pipeline_pb2 import (
    Document,
    DocumentRef,
    PipeStream,
    ProcessResponse,
    Step,
)
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.systems.pipeline.streams import open_streams
from redrive.systems.pipeline.unwrap import NO_STREAM, unwrapped
from redrive.systems.pipeline.wire import MOST_INLINE, Tls, inline_size, request_for
from redrive.worker import Worker

TRANSPORT = "pipeline"
"""The name of the transport that streams go back through."""


def with_pipeline(settings: Settings) -> Settings:
    """Those settings with the pipeline's transport among the others, so that its letters can be sent back."""
    return replace(settings, transports={TRANSPORT: settings.of(PipelineSettings).transport, **settings.transports})


class Engine:
    """Runs a graph, or some nodes of it. Any number of engines share the work.

    nodes   ids or names of those that are worked on here; None: all
    """

    def __init__(
        self,
        graph: Graph,
        settings: Settings | None = None,
        *,
        store: str | Store | None = None,
        nodes: Collection[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.graph = graph
        settings = settings or load()
        self.settings = replace(settings, transports={TRANSPORT: settings.of(PipelineSettings).transport})
        own = self.settings.of(PipelineSettings)
        self.clock = clock or SystemClock()
        self.transport = open_streams(
            own.transport, graph, group=own.group, clock=self.clock, lease=self.settings.lease
        )
        self.app = Redrive(settings=self.settings, store=store, clock=self.clock)
        self.app.use(TRANSPORT, self.transport)
        self.callers: dict[str, Caller] = {}
        self._watches: dict[str, Watch] = {}
        self._outbox = Outbox(self.transport, self.app.events, self.clock)
        self._name = self.settings.worker_name
        chosen = graph.nodes.values() if nodes is None else [graph.node(id) for id in nodes]
        for node in chosen:
            self.app.handler(graph.topic(node), policy=node.policy, concurrency=own.concurrency, transport=TRANSPORT)(
                self._handler(node)
            )

    async def create_topics(self) -> None:
        """Create the topics of the graph that are missing."""
        await self.transport.make(self.settings.of(PipelineSettings).partitions)

    async def send(
        self,
        document: Document | DocumentRef | PipeStream,
        *,
        node: str | None = None,
        metadata: dict[str, str] | None = None,
    ) -> str:
        """Send a new stream to that node, or to where the graph begins; returns its id when it is durable."""
        stream = _stream_of(document, metadata)
        _check_inline(stream, "the document")
        nodes = self.graph.entries if node is None else [self.graph.node(node)]
        if not nodes:
            raise ConfigError("every node of the graph has one before it: say which node the stream begins at")
        body = stream.SerializeToString()
        await self._outbox.send([self._message(self.graph.topic(at), stream, body, "") for at in nodes])
        return stream.stream_id

    def worker(self, **how: Any) -> Worker:
        """A worker that runs it."""
        return Worker(self.app, **how)

    async def aclose(self) -> None:
        await self._outbox.aclose()
        await asyncio.gather(*(watch.aclose() for watch in self._watches.values()))
        await asyncio.gather(*(caller.aclose() for caller in self.callers.values()))
        await self.app.aclose()

    # -- one node --------------------------------------------------------------------------------------------------

    def _handler(self, node: Node) -> Callable[..., Any]:
        call, request, patience = self._caller(node.module), request_for(node.id), node.held_for

        async def process(body: bytes, message: Message) -> None:
            body, stream = _read(body)
            if stream.hop_count >= node.max_hops:
                raise NodeFault(
                    ErrorType.MAX_HOPS,
                    f"the stream passed {stream.hop_count} nodes; {node.label} takes {node.max_hops}",
                )
            _check_inline(stream, "the document")
            began = self.clock.now()
            response, address = await call(
                request(body), node.timeout, id=message.id, attempt=message.attempt, patience=patience
            )
            _check_inline(response, f"what module {node.module!r} made of it")
            self._advance(stream, response, self._step(node, stream, message, began, address))
            if onward := self._onward(node, stream, message):
                await self._outbox.send(onward)

        process.__qualname__ = process.__name__ = f"node {node.label}"
        return process

    def _step(self, node: Node, stream: PipeStream, message: Message, began: datetime, address: str) -> Step:
        return Step(
            node_id=node.id,
            module=node.module,
            started_at=_timestamp(began),
            ended_at=_timestamp(self.clock.now()),
            attempt=message.attempt,
            hop=stream.hop_count + 1,
            message_id=message.id,
            engine=self._name,
            instance=address,
        )

    def _advance(self, stream: PipeStream, response: ProcessResponse, step: Step) -> None:
        """Put the answer into the stream. Where the module says success=false the document stays as it was."""
        step.outcome = Step.OK if response.success else Step.FAILED
        if not response.success:
            step.error_message = response.error_message
        elif response.HasField("document"):
            stream.document.CopyFrom(response.document)
        elif response.HasField("document_ref"):
            stream.document_ref.CopyFrom(response.document_ref)
        if response.success and response.metadata:
            stream.metadata.update(response.metadata)
        stream.hop_count += 1
        stream.history.append(step)

    def _onward(self, node: Node, stream: PipeStream, message: Message) -> list[Message]:
        graph = self.graph
        topics = [graph.topic(graph.nodes[id]) for id in node.next] or ([graph.finished] if graph.finished else [])
        body = stream.SerializeToString() if topics else b""
        return [self._message(topic, stream, body, message.id) for topic in topics]

    def _message(self, topic: str, stream: PipeStream, body: bytes, parent: str) -> Message:
        """The same message again, sent again after a crash, has the same id."""
        digest = blake2b(f"{parent}\0{topic}".encode(), digest_size=8).hexdigest()
        try:
            return self.app.message(
                topic,
                body,
                id=f"{stream.stream_id}:{stream.hop_count}:{digest}",
                key=stream.stream_id,
                correlation_id=stream.stream_id,
            )
        except MessageTooLarge as error:
            raise NodeFault(ErrorType.TOO_LARGE, str(error)) from None

    # -- modules ---------------------------------------------------------------------------------------------------

    def _caller(self, module: str) -> Caller:
        if module not in self.callers:
            own = self.settings.of(PipelineSettings)
            tls = Tls(ca=own.tls_ca, cert=own.tls_cert, key=own.tls_key)
            tls.of_client()  # a file that is missing is told of now
            fixed = self.graph.modules.get(module)
            if fixed is None and own.consul is None:
                raise ConfigError(
                    f"nobody knows where module {module!r} is: give its addresses under `modules` of the graph, "
                    "or set pipeline.consul (REDRIVE_PIPELINE_CONSUL)"
                )
            where = _Fixed(fixed) if fixed is not None else self._watch(module, own.consul or "")
            self.callers[module] = Caller(
                module,
                where.addresses,
                why=lambda: where.why,
                tls=tls,
                clock=self.clock,
                events=self.app.events,
                others_are_busy=lambda: any(other.is_busy for name, other in self.callers.items() if name != module),
            )
        return self.callers[module]

    def _watch(self, module: str, consul: str) -> Watch:
        keep = self.settings.of(PipelineSettings).consul_keep
        self._watches[module] = Watch(consul, module, keep=keep, elapsed=self.clock.elapsed)
        return self._watches[module]


class _Fixed:
    """Addresses that the graph gives."""

    why = "the graph gives it no address"

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses

    async def addresses(self) -> tuple[str, ...]:
        return self._addresses


def _stream_of(document: Document | DocumentRef | PipeStream, metadata: dict[str, str] | None) -> PipeStream:
    match document:
        case Document():
            stream = PipeStream(document=document)
        case DocumentRef():
            stream = PipeStream(document_ref=document)
        case _:
            stream = PipeStream()
            stream.CopyFrom(document)
    stream.stream_id = stream.stream_id or str(uuid4())
    stream.metadata.update(metadata or {})
    return stream


def _read(body: bytes) -> tuple[bytes, PipeStream]:
    """The stream, and its bytes. They may have come in a DlqMessage: somebody has sent it back as it was."""
    try:
        stream = PipeStream.FromString(body)
    except DecodeError as error:
        return _inside(body, f"{NO_STREAM}: {error}")
    if not stream.stream_id.isprintable():  # it may be a DlqMessage; if not, it is a strange name
        inner = unwrapped(body)
        body, stream = (body, stream) if inner is None else (inner, PipeStream.FromString(inner))
    if not stream.stream_id:
        return _inside(body, f"{NO_STREAM}: it has no stream_id")
    if stream.hop_count < 0:
        raise NodeFault(ErrorType.MALFORMED, f"the stream's hop_count is {stream.hop_count}")
    return body, stream


def _inside(body: bytes, otherwise: str) -> tuple[bytes, PipeStream]:
    inner = unwrapped(body)
    if inner is None:
        raise NodeFault(ErrorType.MALFORMED, otherwise)
    return inner, PipeStream.FromString(inner)


def _check_inline(carrier: PipeStream | ProcessResponse, what: str) -> None:
    size = inline_size(carrier)
    if size > MOST_INLINE:
        raise NodeFault(
            ErrorType.TOO_LARGE,
            f"{what} has {size:,} bytes, over the {MOST_INLINE:,} that travel inline: put it into a repository "
            "and carry it as `document_ref`",
        )


def _timestamp(at: datetime) -> Timestamp:
    seconds, rest = divmod(microseconds(at), 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)
