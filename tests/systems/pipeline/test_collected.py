"""DlqMessages on Kafka, of another engine or of ours, as letters and back to their node."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from redrive.flow.signing import use_key
from redrive.forensics.query import Query
from redrive.model import Category, Letter, Message, Reason, State
from redrive.stores.sqlite import SqliteStore
from redrive.systems.pipeline import DlqMessage, Document, PipeStream
from redrive.systems.pipeline.reader import PipelineReader, input_topic
from redrive.transports.base import Delivery
from redrive.transports.kafka.writer import Parcel, Writer
from tests.servers.ports import claim_port
from tests.systems.pipeline.world import ModuleProcess, Pipe, command, config, environment, node

NODE = "5a1c6c2e-0d5f-4c53-9d51-0f6a3a9a7f10"
NOW = datetime(2026, 3, 2, tzinfo=UTC)
FAILED = datetime(2026, 3, 1, 12, 30, 15, 250_000, UTC)
UNKNOWN = b"\xba\x3e\x03abc"  # field 999


def stream_bytes(id: str = "s-1") -> bytes:
    """With a field that we do not know, before those that we do."""
    return (
        UNKNOWN
        + PipeStream(stream_id=id, document=Document(content=b"x"), metadata={"do": "upper"}).SerializeToString()
    )


def dead(stream: bytes, topic: str = f"prod.{NODE}", **changes: Any) -> bytes:
    """As an engine in Java would write it: no headers, and its own order of fields."""
    said = {"error_type": "TIMEOUT", "error_message": "deadline after 5s", "retry_count": 3, "failed_node_id": NODE}
    message = DlqMessage(**{**said, "original_topic": topic, "original_offset": 1007, **changes})
    message.failed_at.FromDatetime(FAILED)
    return message.SerializeToString() + b"\x0a" + bytes([len(stream)]) + stream


def read(body: bytes, topic: str = f"dlq.prod.{NODE}", headers: Any = (), **how: Any) -> Letter:
    message = Message(f"{topic}[0]@5", topic, body, NOW, headers, origin=f"{topic}[0]@5")
    letter = PipelineReader(topic, **how)(Delivery(message, None), NOW)
    assert letter is not None
    return letter


def test_a_dead_stream_of_another_engine() -> None:
    letter = read(dead(stream_bytes()))
    assert (letter.message.source, letter.transport, letter.state) == (f"prod.{NODE}", "pipeline", State.PENDING)
    assert letter.message.body == stream_bytes(), "byte for byte"
    assert (letter.message.correlation_id, letter.message.key) == ("s-1", b"s-1")
    assert (letter.last.type, letter.last.code, letter.last.message) == ("TIMEOUT", "TIMEOUT", "deadline after 5s")
    assert (letter.last.category, letter.last.retryable, letter.last.attempt) == (Category.NETWORK, True, 3)
    assert (letter.last.at, letter.created_at) == (FAILED, FAILED)


def test_the_same_death_published_twice_is_one_letter() -> None:
    one, again = read(dead(stream_bytes())), read(dead(stream_bytes()), headers=(("retry", b"1"),))
    assert one.id == again.id
    assert read(dead(stream_bytes(), original_offset=1008)).id != one.id
    assert read(dead(stream_bytes("s-2"))).id != one.id, "an offset without its partition is no name"
    other = dead(stream_bytes(), error_message="deadline after 6s")
    assert read(other).id != one.id, "nor with the id of its stream: it may lie on two partitions"
    none, neither = dead(b"", error_message="a"), dead(b"", error_message="b")
    assert read(none).id != read(neither).id, "two that never were streams are two letters"


def test_where_it_goes_back_to() -> None:
    body = dead(stream_bytes(), "elsewhere.in")
    assert read(body, "own.dead").message.source == "elsewhere.in"
    assert read(body).message.source == f"prod.{NODE}", "the input topic of the node, as the contract has it"
    assert read(body, source="given").message.source == "given"
    assert read(dead(stream_bytes(), ""), "own.dead", source="given", transport="t").transport == "t"
    assert input_topic(f"dlq.a.b.{NODE}") == f"a.b.{NODE}"
    for topic in (f"dlq.{NODE}", f"prod.{NODE}", f"dlq.prod.{NODE}x", "dlq.prod.orders"):
        assert input_topic(topic) is None


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b'{"json": true}', b"\x12\x02\xff\xfe"])
def test_bytes_that_are_no_dlq_message_are_kept_whole(body: bytes) -> None:
    letter = read(body)
    assert (letter.message.body, letter.reason, letter.last.code) == (body, Reason.UNDECODABLE, "MALFORMED")


def test_a_dlq_message_that_says_little() -> None:
    letter = read(b"")
    assert (letter.message.body, letter.last.type, letter.last.at) == (b"", "UNKNOWN", NOW)
    odd = DlqMessage(error_type="OUT_OF_CHEESE")
    odd.failed_at.seconds = 1 << 60
    letter = read(odd.SerializeToString() + b"\x7b\x08\x01\x7c\x0a\x05\x0a\x03s-1")  # and a group nobody knows
    assert (letter.last.code, letter.last.at, letter.message.correlation_id) == ("OUT_OF_CHEESE", NOW, "s-1")
    never = read(dead(b"", error_type="MALFORMED"), headers=(("redrive-original", b"\xff raw"),))
    assert (never.reason, never.last.retryable) == (Reason.UNDECODABLE, False)


def test_what_stands_for_a_letter_that_is_stored_is_none() -> None:
    """A stream that was too large for its DLQ topic: the letter has it."""
    stub = Message("m", "dlq", b'{"letter": "l-1"}', NOW, (("redrive-stub", b"l-1"),))
    assert PipelineReader(f"dlq.prod.{NODE}")(Delivery(stub, None), NOW) is None


def collect(env: dict[str, str], kafka: str, topic: str, *more: str) -> int:
    url = f"kafka://{kafka}/{topic}?group=collect-{topic}-{len(more)}"
    words = [sys.executable, "-m", "redrive", "collect", url, *more, "--json"]
    done = subprocess.run(words, env=os.environ | env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["collected"])


async def put(pipe: Pipe, topic: str, *values: bytes) -> None:
    """Without a header: whoever wrote them does not know us. As of today: Kafka drops what is older than a week."""
    writer: Writer = pipe.engine.transport.writer  # type: ignore[attr-defined]
    parcels = [Parcel(topic, value, None, [], datetime.now(UTC)) for value in values]
    assert await writer.outcomes(parcels) == [None] * len(values)


async def test_streams_that_another_engine_buried_are_collected_and_replayed(
    kafka: str, flex: ModuleProcess, tmp_path: Path
) -> None:
    at = node(name="at")
    store = SqliteStore(f"sqlite:///{tmp_path}/redrive.db")
    async with Pipe(kafka, [at], {"flex": [flex.address]}, store=store) as pipe:
        env, topic = environment(pipe, tmp_path), pipe.graph.topic(at)
        await put(pipe, pipe.graph.dlq_topic(at), dead(stream_bytes("s-1"), topic), dead(stream_bytes("s-2"), topic))
        assert collect(env, kafka, pipe.graph.dlq_topic(at)) == 2
        some = await command(env, "pipeline", "replay", "at", "--error-type", "TIMEOUT", "--yes", "--timeout", "60s")
        assert some.exit_code == 0, (some.stdout, some.stderr)
        ended = await pipe.finished(2)
        assert await store.letters.count(Query(states=(State.RESOLVED,))) == 2
        arrived = await pipe.records(topic, 2)
    assert sorted(raw.value() for raw in arrived) == [stream_bytes("s-1"), stream_bytes("s-2")]
    assert {(one.stream_id, one.document.content) for one in ended} == {("s-1", b"X"), ("s-2", b"X")}


async def test_what_our_engine_buried_is_known_by_its_header_and_others_by_what_the_operator_says(
    kafka: str, tmp_path: Path
) -> None:
    """A topic whose name says nothing: `dlq_config.topic` may be anything."""
    own = f"own.dead.{claim_port()}"
    at = node(dlq_config=config(1, topic=own))
    key = {"REDRIVE_LINEAGE_KEY": "of all three stores"}
    use_key(key["REDRIVE_LINEAGE_KEY"])
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]}) as pipe:
        await pipe.send(content=b"kept")
        [before] = await pipe.letters(1)
        await put(pipe, own, dead(stream_bytes(), pipe.graph.topic(at)))
        env = environment(pipe, tmp_path, **key)
        await pipe.records(own, 2)
        told = environment(pipe, tmp_path, **key, REDRIVE_STORE=f"sqlite:///{tmp_path}/told.db")
        numbers = await asyncio.gather(
            asyncio.to_thread(collect, env, kafka, own),
            asyncio.to_thread(collect, told, kafka, own, "--format", "pipeline"),
        )
        assert list(numbers) == [2, 2]
    found, said = await stored(env), await stored(told)
    for ours in (found.pop(before.last.type), said.pop(before.last.type)):
        assert (ours.id, ours.message.body, ours.failures) == (before.id, before.message.body, before.failures)
        assert ours.message.headers == before.message.headers
    assert list(found) == ["collected.Unknown"], "what its value looks like is no reason"
    assert said["TIMEOUT"].message.body == stream_bytes()


async def stored(env: dict[str, str]) -> dict[str, Letter]:
    """By the type of their error."""
    store = SqliteStore(env["REDRIVE_STORE"])
    letters = (await store.letters.search(Query())).letters
    await store.aclose()
    return {letter.last.type: letter for letter in letters}
