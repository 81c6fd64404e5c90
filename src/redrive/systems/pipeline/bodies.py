"""The body of a letter of the pipeline in the words of pipeline.proto."""

from __future__ import annotations

from google.protobuf.json_format import Error, MessageToDict

from redrive.forensics.decoded import Decoded
from redrive.model import Letter
from redrive.systems.pipeline.pipeline_pb2 import PipeStream
from redrive.systems.pipeline.unwrap import message_in

_MOST = 8 << 20
_MOST_BESIDE = 256 << 10  # bytes of everything but the content of the document


def read_body(letter: Letter) -> Decoded | None:
    """The stream or the DlqMessage that it is; None if it is neither, or too large to be told."""
    body = letter.message.body
    message = message_in(body) if len(body) <= _MOST else None
    if message is None:
        return None
    content = _taken_out(message if isinstance(message, PipeStream) else message.stream)
    if message.ByteSize() > _MOST_BESIDE:
        return None
    try:
        value = MessageToDict(message, preserving_proto_field_name=True)
    except (Error, ValueError, OverflowError):  # a time that no calendar has
        return None
    if content:
        value.get("stream", value)["document"]["content"] = content
    return Decoded(format="Protobuf", schema=message.DESCRIPTOR.full_name, value=value)


def _taken_out(stream: PipeStream) -> bytes:
    """The content of its document, which is no longer in it: it would be told in Base64."""
    if not stream.HasField("document"):
        return b""
    content = stream.document.content
    stream.document.ClearField("content")
    return content
