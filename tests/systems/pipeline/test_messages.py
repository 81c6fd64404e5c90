"""The messages on the wire, decoded by hand: no protobuf library has a say in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tools import protos

from redrive.model import Category, Failure, Letter, Message, Reason, State
from redrive.systems.pipeline import DlqConfig, DlqMessage, Document, Node, PipeStream
from redrive.systems.pipeline.dlq import dlq_message

VARINT, LENGTH = 0, 2


def decoded(data: bytes) -> list[tuple[int, int, Any]]:
    """(field number, wire type, value), as the encoding is written down."""
    found: list[tuple[int, int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        tag = varint()
        number, kind = tag >> 3, tag & 7
        assert kind in (VARINT, LENGTH)
        if kind == VARINT:
            found.append((number, kind, varint()))
        else:
            size = varint()
            found.append((number, kind, data[at : at + size]))
            at += size
    return found


FAILED = datetime(2026, 3, 1, 12, 30, 15, 250_000, UTC)
NODE = Node(id="5a1c6c2e-0d5f-4c53-9d51-0f6a3a9a7f10", module="parse")


def letter(body: bytes) -> Letter:
    failure = Failure("NodeFault", "it hangs", Category.NETWORK, True, FAILED, 3, code="TIMEOUT")
    message = Message("m-1", f"prod.{NODE.id}", body, FAILED, origin=f"prod.{NODE.id}[3]@1007")
    return Letter("l-1", message, (failure,), State.PENDING, Reason.ATTEMPTS, "g", FAILED, FAILED)


def test_a_dlq_message_has_the_fields_of_the_document() -> None:
    body = PipeStream(stream_id="s-1", document=Document(content=b"x" * 300)).SerializeToString()
    data, has_stream = dlq_message(letter(body), NODE)
    assert has_stream
    fields = decoded(data)
    assert [(number, kind) for number, kind, _ in fields] == [
        (1, LENGTH),
        (2, LENGTH),
        (3, LENGTH),
        (4, LENGTH),
        (5, VARINT),
        (6, LENGTH),
        (7, LENGTH),
        (8, VARINT),
    ]
    values = {number: value for number, _, value in fields}
    assert (values[1], values[2], values[3]) == (body, b"TIMEOUT", b"it hangs")
    assert (values[5], values[6], values[7], values[8]) == (3, NODE.id.encode(), f"prod.{NODE.id}".encode(), 1007)
    stamp = {number: value for number, _, value in decoded(values[4])}
    assert stamp == {1: int(FAILED.timestamp()), 2: 250_000_000}
    assert DlqMessage.FromString(data).stream.document.content == b"x" * 300


def test_a_dlq_config_has_the_fields_of_the_document() -> None:
    config = DlqConfig(enabled=True, topic="own", max_retries=5, retry_backoff=Duration(seconds=2, nanos=500_000_000))
    fields = decoded(config.SerializeToString())
    assert [(number, kind) for number, kind, _ in fields] == [(1, VARINT), (2, LENGTH), (3, VARINT), (4, LENGTH)]
    values = {number: value for number, _, value in fields}
    assert (values[1], values[2], values[3]) == (1, b"own", 5)
    assert {number: value for number, _, value in decoded(values[4])} == {1: 2, 2: 500_000_000}


@pytest.mark.parametrize(
    ("kind", "name", "number", "type"),
    [
        (DlqMessage, "stream", 1, "redrive.pipeline.PipeStream"),
        (DlqMessage, "error_type", 2, 9),
        (DlqMessage, "error_message", 3, 9),
        (DlqMessage, "failed_at", 4, "google.protobuf.Timestamp"),
        (DlqMessage, "retry_count", 5, 5),
        (DlqMessage, "failed_node_id", 6, 9),
        (DlqMessage, "original_topic", 7, 9),
        (DlqMessage, "original_offset", 8, 3),
        (DlqConfig, "enabled", 1, 8),
        (DlqConfig, "topic", 2, 9),
        (DlqConfig, "max_retries", 3, 5),
        (DlqConfig, "retry_backoff", 4, "google.protobuf.Duration"),
    ],
)
def test_numbers_and_types_are_law(kind: Any, name: str, number: int, type: object) -> None:
    field = kind.DESCRIPTOR.fields_by_name[name]
    assert field.number == number
    assert (field.message_type.full_name if field.message_type else field.type) == type


def test_bytes_of_another_encoder_are_read() -> None:
    """Written by hand, as a Java engine would: fields out of order, and one that nobody knows."""
    stream = b"\x0a\x03s-9"
    data = b"\x28\x02" + b"\x12\x07TIMEOUT" + b"\x0a" + bytes([len(stream)]) + stream + b"\x40\xef\x07" + b"\x7a\x01!"
    found = DlqMessage.FromString(data)
    assert (found.stream.stream_id, found.error_type, found.retry_count, found.original_offset) == (
        "s-9",
        "TIMEOUT",
        2,
        1007,
    )
    assert b"\x7a\x01!" in found.SerializeToString()
    assert found.failed_at == Timestamp()


def test_defaults_are_those_of_the_contract() -> None:
    assert NODE.has_dlq, "absent means enabled"
    assert not Node(id="x", module="m", dlq_config=DlqConfig(enabled=False)).has_dlq
    assert NODE.policy.attempts == 3


def test_what_is_generated_is_current() -> None:
    assert [name for proto in protos.PROTOS for name in protos.stale(proto)] == []
