"""What is in a DlqMessage: its stream, byte for byte, wherever such a message is found."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from redrive.systems.pipeline.pipeline_pb2 import DlqMessage, PipeStream

NO_STREAM = "the record is no PipeStream"
"""How the message of a MALFORMED stream begins."""
_STREAM = 1  # the field of a DlqMessage
_SIZES = {1: 8, 5: 4}  # of wire types with a fixed one


def unwrapped(body: bytes) -> bytes | None:
    """The stream in a DlqMessage; None if the bytes are none, or one without a stream."""
    dead = _dead_in(body)
    return None if dead is None else stream_bytes(body, dead)


def bare_stream(body: bytes) -> bytes:
    """The bytes of the stream in that body, which may be a DlqMessage; otherwise the body."""
    return body if _stream_in(body) is not None else unwrapped(body) or body


def message_in(body: bytes) -> PipeStream | DlqMessage | None:
    """The stream that the body is, or the DlqMessage with one."""
    return _stream_in(body) or _dead_in(body)


def stream_bytes(data: bytes, dead: DlqMessage) -> bytes:
    """The stream of a DlqMessage. One that was written in several pieces is those pieces together."""
    try:
        return b"".join(value for number, value in _fields(data) if number == _STREAM)
    except KeyError:  # a group among what we do not know
        return dead.stream.SerializeToString()


def is_of_a_dlq(body: bytes, node_id: str, topic: str) -> bool:
    """Whether bytes that are no stream were taken from the DLQ of that node: a DlqMessage without a stream, or a piece
    of one, as the consoles of Kafka make of each line."""
    if node_id.encode() in body or NO_STREAM.encode() in body:
        return True
    try:
        dead = DlqMessage.FromString(body)
    except DecodeError:
        return False
    return bool(dead.error_type) and dead.original_topic == topic


def _stream_in(body: bytes) -> PipeStream | None:
    try:
        stream = PipeStream.FromString(body)
    except DecodeError:
        return None
    return stream if _has_id(stream) else None


def _dead_in(body: bytes) -> DlqMessage | None:
    try:
        dead = DlqMessage.FromString(body)
    except DecodeError:
        return None
    says_why = dead.error_type or dead.failed_node_id or dead.original_topic
    return dead if says_why and _has_id(dead.stream) else None


def _has_id(stream: PipeStream) -> bool:
    """A DlqMessage that is read as a stream has the bytes of a stream as its id, which begin with a line feed."""
    return bool(stream.stream_id) and stream.stream_id.isprintable()


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each field of a message that is known to be one."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                _, end = _varint(data, at)
            case 2:
                size, at = _varint(data, at)
                end = at + size
            case kind:
                end = at + _SIZES[kind]
        yield tag >> 3, data[at:end]
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 128:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1
