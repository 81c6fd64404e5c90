"""Dead streams that somebody sends back by hand: DlqMessages on an input topic, as the document's console does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from redrive.forensics.query import Query
from redrive.model import Letter, Reason, State
from redrive.systems.pipeline import DlqMessage, Document, PipeStream
from redrive.systems.pipeline.dlq import dlq_message
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import NodeFault
from redrive.systems.pipeline.trace import Tracer
from redrive.systems.pipeline.unwrap import NO_STREAM, bare_stream, is_of_a_dlq, unwrapped
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.waiting import until
from redrive.transports.kafka.writer import Parcel, Writer
from tests.servers.ports import claim_port
from tests.systems.pipeline.world import ModuleProcess, Pipe, config, node

Starts = Callable[..., ModuleProcess]
STREAM = PipeStream(stream_id="s-1", document=Document(content=b"x"), metadata={"do": "upper"})


async def copied(pipe: Pipe, raws: list[Any], topic: str, *, headers: bool = False) -> None:
    """As kcat does, or MirrorMaker, which copies headers too."""
    writer: Writer = pipe.engine.transport.writer  # type: ignore[attr-defined]
    now = datetime.now(UTC)
    parcels = [Parcel(topic, raw.value(), raw.key(), list(raw.headers() or ()) if headers else [], now) for raw in raws]
    assert await writer.outcomes(parcels) == [None] * len(parcels)


async def test_dlq_messages_on_an_input_topic_are_unwrapped_and_processed(kafka: str, start_module: Starts) -> None:
    port = claim_port()
    at = node(name="at", dlq_config=config(2))
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{port}"]}) as pipe:
        bare, whole = await pipe.send_some(2, "upper", content=b"kept")
        await pipe.letters(2)
        raws = await pipe.records(pipe.graph.dlq_topic(at), 2)
        await start_module(port=port).started()
        await until(lambda: not pipe.engine.callers["flex"].instances[f"127.0.0.1:{port}"].aside, what="well again")
        by_id = {DlqMessage.FromString(raw.value()).stream.stream_id: raw for raw in raws}
        await copied(pipe, [by_id[bare]], pipe.graph.topic(at))
        await copied(pipe, [by_id[whole]], pipe.graph.topic(at), headers=True)
        ended = {stream.stream_id: stream for stream in await pipe.finished(2)}
        [resolved] = await pipe.letters(1, Query(states=(State.RESOLVED,)))
        assert await pipe.store.letters.count(Query()) == 2, "nothing of it died again"
        traced = await Tracer(pipe.graph, pipe.engine.transport, lambda: pipe.store.letters).trace(bare)
    assert {(stream.document.content, len(stream.history)) for stream in ended.values()} == {(b"KEPT", 1)}
    assert ended[whole].history[0].attempt == 1, "as a replay has it"
    assert resolved.message.correlation_id == whole, "its headers say which letter it is"
    assert [seen.where for seen in traced.sightings] == ["at", "DLQ of at", "at", "finished"]


async def test_a_stream_that_dies_again_is_in_its_dlq_message_once(kafka: str) -> None:
    """And no DlqMessage is in another."""
    at = node(dlq_config=config(1))
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]}) as pipe:
        id = await pipe.send(content=b"kept")
        topic = pipe.graph.dlq_topic(at)
        for number in range(1, 4):
            raws = await pipe.records(topic, number)
            await copied(pipe, raws[-1:], pipe.graph.topic(at))
        raws = await pipe.records(topic, 4)
    bodies = [DlqMessage.FromString(raw.value()) for raw in raws]
    assert {(dead.error_type, dead.stream.stream_id) for dead in bodies} == {("CONNECTION_REFUSED", id)}
    assert {dead.stream.document.content for dead in bodies} == {b"kept"}
    assert len({len(raw.value()) // 16 for raw in raws}) == 1, "it does not grow"


async def test_garbage_that_is_copied_back_from_its_dlq_ends_there(kafka: str, flex: ModuleProcess) -> None:
    """Whoever copies the topic to the input again and again would do so for ever. All of it is in the store."""
    at, garbage = node(), [b"", b"\xff\xff\xff", b'{"json": true}']
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        topic = pipe.graph.dlq_topic(at)
        writer: Writer = pipe.engine.transport.writer  # type: ignore[attr-defined]
        now = datetime.now(UTC)
        await writer.outcomes([Parcel(pipe.graph.topic(at), value, None, [], now) for value in garbage])
        raws = await pipe.records(topic, len(garbage))
        for times in (2, 3):
            await copied(pipe, raws, pipe.graph.topic(at), headers=times == 3)
            letters = await pipe.letters(min(2, times) * len(garbage))
        id = await pipe.send("upper")
        await until(lambda: id in pipe.ended, timeout=60, what="streams go on")
        assert len(await pipe.records(topic, 0)) == len(garbage), "the DLQ has each of them once"
    assert {letter.last.code for letter in letters} == {"MALFORMED"}


def malformed(body: bytes, number: int, at: Any) -> Letter:
    message = make_message(source=f"prod.{at.id}", body=body, origin=f"prod.{at.id}[1]@{number}")
    error = NodeFault(ErrorType.MALFORMED, f"{NO_STREAM}: Error parsing message")
    failure = make_failure(message=str(error), code="MALFORMED", at=datetime.fromtimestamp(1.7e9 + number, UTC))
    return make_letter(message=message, failures=(failure,), reason=Reason.PERMANENT)


def test_pieces_that_a_console_makes_of_dlq_messages_die_out() -> None:
    """It splits at each line feed, and replaces what is no UTF-8."""
    at, again, pieces = node(), 0, 0
    for number in range(0, 4_000_000, 1_999):
        value, _ = dlq_message(malformed(b"piece", number, at), at)
        lines = [line.decode("utf-8", "replace").encode() for line in value.split(b"\n")]
        pieces += len(lines)
        again += sum(not is_of_a_dlq(line, at.id, f"prod.{at.id}") for line in lines)
    assert again < pieces / 100, "of a hundred that come back fewer than one goes round again"


def test_what_is_a_stream_is_never_taken_for_a_dlq_message() -> None:
    strange = PipeStream(stream_id="a\nb", document=Document(content=b"x")).SerializeToString()
    for body in (STREAM.SerializeToString(), strange, PipeStream(stream_id="6").SerializeToString()):
        assert bare_stream(body) == body
        assert unwrapped(body) is None
    quiet = DlqMessage(stream=STREAM).SerializeToString()
    assert unwrapped(quiet) is None, "a message that says nothing but a stream is no DlqMessage"


def test_a_dlq_message_of_another_engine_is_unwrapped_byte_for_byte() -> None:
    for kind in ("TIMEOUT", "", "b", "OUT_OF_CHEESE"):
        inner = b"\xba\x3e\x03abc" + STREAM.SerializeToString()
        said = DlqMessage(error_type=kind, original_topic="prod.n", failed_node_id="n").SerializeToString()
        body = said + b"\x0a" + bytes([len(inner)]) + inner
        assert bare_stream(body) == inner
    assert bare_stream(b"\xff") == b"\xff"
