"""Dead-letter topics of a pipeline: DlqMessages in protobuf, whichever engine wrote them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import blake2b

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from redrive.collect.foreign import failure_of, letter_of
from redrive.model import Failure, Letter, Message, Reason
from redrive.systems.pipeline.dlq import UNREADABLE, stream_in
from redrive.systems.pipeline.engine import TRANSPORT
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import NodeFault
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage
from redrive.systems.pipeline.unwrap import stream_bytes
from redrive.transports.base import Delivery
from redrive.transports.kafka.dlq import DEAD, STUB, letter_in

_NODE = re.compile(r"dlq\.(.+\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")  # dlq.{cluster}.{node-uuid}
_REASONS: dict[str, Reason] = {ErrorType.MALFORMED: Reason.UNDECODABLE, ErrorType.MAX_HOPS: Reason.PERMANENT}


class PipelineReader:
    """Letters from the DlqMessages of one node.

    transport   the name of the transport that a replay sends them back through
    source      the node's input topic, where neither the topic's name nor the message says it
    """

    def __init__(self, topic: str, *, transport: str = TRANSPORT, source: str | None = None) -> None:
        self._topic = topic
        self._transport = transport
        self._source = source

    def __call__(self, delivery: Delivery, now: datetime) -> Letter | None:
        message = delivery.message
        if message.header(STUB) is not None and message.header(DEAD) is None:
            return None  # the letter itself is in the store of who wrote it
        try:
            dead = DlqMessage.FromString(message.body)
        except DecodeError as error:
            return self._unreadable(message, f"found in {self._topic}, and no DlqMessage: {error}", now)
        bare = _bare(message, dead)
        ours = letter_in(message.headers, message)
        if ours is not None:
            story = replace(ours.message, body=bare.body, headers=_bare(ours.message, dead).headers)
            return replace(ours, message=story, transport=self._transport)
        return self._foreign(bare, dead, message.body + (message.header(UNREADABLE) or b""), now)

    def _foreign(self, message: Message, dead: DlqMessage, said: bytes, now: datetime) -> Letter:
        """The letter of another engine's dead stream. Its id is what its DlqMessage says: published twice, it is one
        letter. Topic and offset alone do not tell two of them apart, for nobody says which partition it was."""
        source = self._home(dead)
        stream_id = stream_in(message.body).stream_id
        place = f"{dead.original_topic}@{dead.original_offset}"
        named = replace(
            message,
            source=source,
            id=f"{place}:{stream_id}:{_digest(said)}" if dead.original_topic else message.id,
            key=message.key or stream_id.encode() or None,
            correlation_id=stream_id or None,
        )
        failure = _failure(dead, message.enqueued_at)
        reason = _REASONS.get(dead.error_type, Reason.ATTEMPTS)
        letter = letter_of(named, failure, transport=self._transport, now=now, reason=reason)
        return replace(letter, created_at=min(failure.at, now))

    def _unreadable(self, message: Message, text: str, now: datetime) -> Letter:
        failure = failure_of("collected.Unknown", text, message.enqueued_at, code=ErrorType.MALFORMED)
        named = replace(message, source=self._home(DlqMessage()))
        return letter_of(named, failure, transport=self._transport, now=now, reason=Reason.UNDECODABLE)

    def _home(self, dead: DlqMessage) -> str:
        return self._source or input_topic(self._topic) or dead.original_topic or self._topic


def input_topic(topic: str) -> str | None:
    """The topic that a node of a pipeline reads, by the name of its DLQ; None for a topic that is no such DLQ."""
    found = _NODE.fullmatch(topic)
    return None if found is None else found[1]


def _bare(message: Message, dead: DlqMessage) -> Message:
    """The message with the stream as its body, byte for byte as it came; or with the bytes that are no stream."""
    body = message.header(UNREADABLE) or b""
    if dead.HasField("stream"):
        body = stream_bytes(message.body, dead)
    return replace(message, body=body, headers=tuple(header for header in message.headers if header[0] != UNREADABLE))


def _digest(said: bytes) -> str:
    return blake2b(said, digest_size=8).hexdigest()


def _failure(dead: DlqMessage, otherwise: datetime) -> Failure:
    said, kind = dead.error_type or "UNKNOWN", ErrorType.__members__.get(dead.error_type)
    found = failure_of(said, dead.error_message, _moment(dead, otherwise), attempt=dead.retry_count, code=said)
    if kind is None:
        return found
    known = NodeFault(kind, "")
    return replace(found, category=known.category, retryable=known.retryable)


def _moment(dead: DlqMessage, otherwise: datetime) -> datetime:
    try:
        return dead.failed_at.ToDatetime(UTC) if dead.HasField("failed_at") else otherwise
    except (ValueError, OverflowError):
        return otherwise
