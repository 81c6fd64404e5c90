"""The trigger table of the contract: each row on real processes, with real errors of gRPC."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.clock import SystemClock
from redrive.errors import NotNow
from redrive.model import Message, Reason, State
from redrive.systems.pipeline import DlqMessage, Document, Node, PipeStream, ProcessRequest, Step
from redrive.systems.pipeline.caller import RULE, NobodyKnown
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import GivenUp, NodeFault
from redrive.systems.pipeline.trace import Tracer
from redrive.systems.pipeline.wire import MOST_INLINE, MOST_MESSAGE, request_for
from redrive.testing.waiting import until
from redrive.transports.base import SendResult, SendStatus
from tests.servers.consul import Consul
from tests.servers.fixtures import StartsServer
from tests.servers.kafka import Kafka
from tests.servers.ports import claim_port
from tests.systems.pipeline.test_stalls import made_caller
from tests.systems.pipeline.world import ModuleProcess, Pipe, config, node

Starts = Callable[..., ModuleProcess]
_SOON = {"broker.heartbeat.interval.ms": 500, "broker.session.timeout.ms": 2000}  # it is back when its old self is gone


async def died(pipe: Pipe, at: Node, kind: ErrorType, retries: int) -> DlqMessage:
    """It is on the topic of its node as the contract has it, and a letter in the store."""
    [dead] = await pipe.dead(at)
    assert (dead.error_type, dead.failed_node_id, dead.retry_count) == (kind, at.id, retries)
    assert dead.original_topic == f"{pipe.graph.cluster}.{at.id}"
    [letter] = await pipe.letters(1)
    assert (letter.last.code, letter.message.source, letter.state) == (kind, dead.original_topic, State.PENDING)
    assert (dead.failed_at.ToDatetime().isoformat(), dead.error_message) == (
        letter.last.at.replace(tzinfo=None).isoformat(),
        letter.last.message,
    )
    return dead


async def test_success_false_is_logical(kafka: str, flex: ModuleProcess) -> None:
    last = node(name="last")
    first = node("flex", last, name="first")
    async with Pipe(kafka, [first, last], {"flex": [flex.address]}) as pipe:
        await pipe.send("reject", content=b"as it was")
        [stream] = await pipe.finished(1)
        assert await pipe.store.letters.tallies() == []
    assert stream.document.content == b"as it was"
    assert [(one.outcome, one.error_message) for one in stream.history] == [
        (Step.FAILED, "couldn't parse this PDF"),
        (Step.FAILED, "couldn't parse this PDF"),
    ]
    assert stream.hop_count == 2


async def test_success_false_with_a_document_in_the_answer(kafka: str, flex: ModuleProcess) -> None:
    """The original goes on: neither what the module made of it nor its metadata is taken."""
    async with Pipe(kafka, [node()], {"flex": [flex.address]}) as pipe:
        await pipe.send("half", content=b"as it was")
        [stream] = await pipe.finished(1)
        assert await pipe.store.letters.tallies() == []
    assert (stream.document.content, dict(stream.metadata)) == (b"as it was", {"do": "half"})
    assert [(one.outcome, one.error_message) for one in stream.history] == [(Step.FAILED, "only half")]


async def test_a_module_that_consul_does_not_know(kafka: str, consul_server: Consul) -> None:
    at = node("nobody")
    async with Pipe(kafka, [at], consul=consul_server.url) as pipe:
        id = await pipe.send()
        dead = await died(pipe, at, ErrorType.MODULE_UNAVAILABLE, 3)
    assert dead.stream.stream_id == id
    assert "no healthy instance" in dead.error_message


async def test_consul_down(kafka: str) -> None:
    at = node()
    async with Pipe(kafka, [at], consul=f"http://127.0.0.1:{claim_port()}") as pipe:
        await pipe.send()
        dead = await died(pipe, at, ErrorType.MODULE_UNAVAILABLE, 3)
    assert "Consul does not answer" in dead.error_message


async def test_a_timeout_after_retries(kafka: str, flex: ModuleProcess) -> None:
    at = node(timeout=0.3, dlq_config=config(2))
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        await pipe.send("hang")
        dead = await died(pipe, at, ErrorType.TIMEOUT, 2)
        [letter] = await pipe.letters(1)
    assert "DEADLINE_EXCEEDED" in dead.error_message
    assert [one.attempt for one in letter.failures] == [1, 2]


async def test_a_refused_connection(kafka: str) -> None:
    at = node()
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]}) as pipe:
        await pipe.send()
        await died(pipe, at, ErrorType.CONNECTION_REFUSED, 3)


async def test_a_module_that_dies_of_a_stream(kafka: str, start_module: Starts) -> None:
    one = await start_module().started()
    at = node()
    async with Pipe(kafka, [at], {"flex": [one.address]}) as pipe:
        await pipe.send("die")
        await died(pipe, at, ErrorType.CONNECTION_REFUSED, 3)
        [letter] = await pipe.letters(1)
    assert letter.failures[0].code == ErrorType.RETRIES_EXHAUSTED, "the connection broke under the first call"


async def test_repeated_transient_failures(kafka: str, flex: ModuleProcess) -> None:
    at = node(dlq_config=config(4))
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        await pipe.send("fail")
        dead = await died(pipe, at, ErrorType.RETRIES_EXHAUSTED, 4)
    assert "it fails every time" in dead.error_message


async def test_malformed_streams(kafka: str, flex: ModuleProcess) -> None:
    at, garbage = node(), [b"", b"\xff\xff\xff", b'{"json": true}', b"\x12\x00"]
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        for number, value in enumerate(garbage):
            await put(pipe, at, value, f"foreign-{number}")
        dead = await pipe.dead(at, len(garbage))
        raws = await pipe.records(pipe.graph.dlq_topic(at), len(garbage))
        letters = await pipe.letters(len(garbage))
    assert {(one.error_type, one.retry_count, one.HasField("stream")) for one in dead} == {("MALFORMED", 0, False)}
    assert {letter.message.body for letter in letters} == set(garbage), "nothing of it is lost"
    assert {dict(raw.headers())["redrive-original"] for raw in raws} == set(garbage)


async def test_max_hops(kafka: str, flex: ModuleProcess) -> None:
    one, other = node(max_hops=5), node(max_hops=5)
    loop = [_leads_to(one, other), _leads_to(other, one)]
    async with Pipe(kafka, loop, {"flex": [flex.address]}) as pipe:
        await pipe.send(node=one.id)
        [letter] = await pipe.letters(1)
        [dead] = await pipe.dead(other)
    assert (letter.last.code, letter.reason) == (ErrorType.MAX_HOPS, Reason.PERMANENT)
    assert (dead.error_type, dead.stream.hop_count, dead.retry_count) == ("MAX_HOPS", 5, 0)
    assert [step.hop for step in dead.stream.history] == [1, 2, 3, 4, 5]


def _leads_to(one: Node, other: Node) -> Node:
    return replace(one, next=(other.id,))


async def test_four_megabytes_inline(kafka: str, flex: ModuleProcess) -> None:
    at = node()
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        with pytest.raises(NodeFault, match=r"4,194,305 bytes.*document_ref"):
            await pipe.engine.send(Document(content=b"x" * (4 << 20) + b"x"))
        with pytest.raises(NodeFault, match=r"max\.message\.bytes"):
            await pipe.engine.send(Document(content=b"x" * (3 << 20)))


async def test_an_answer_that_is_too_large(kafka: str, flex: ModuleProcess) -> None:
    """No retry makes it smaller. The document that came is what dies, and it is small."""
    at = node()
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        for size in (MOST_INLINE + 1, MOST_MESSAGE):
            await pipe.send("grow", size=str(size))
        dead = await pipe.dead(at, 2)
        letters = await pipe.letters(2)
    assert {(one.error_type, one.retry_count) for one in dead} == {("TOO_LARGE", 0)}
    assert {one.stream.document.content for one in dead} == {b"text"}
    assert {len(one.failures) for one in letters} == {1}, "it is asked once"
    [ours, of_grpc] = sorted((one.error_message for one in dead), key=len)
    assert ours.startswith("what module 'flex' made of it has 4,194,305 bytes, over the 4,194,304 that travel inline")
    assert "5,242,880 bytes, 4,194,304 of them a document" in of_grpc
    assert {"document_ref" in text for text in (ours, of_grpc)} == {True}


async def test_a_dead_stream_is_published_byte_for_byte(kafka: str) -> None:
    """Also what we do not know of it: field 999 was added by somebody else."""
    at = node()
    strange = PipeStream(stream_id="s-1", document=Document(content=b"x")).SerializeToString() + b"\xba\x3e\x03abc"
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]}) as pipe:
        await put(pipe, at, strange)
        [raw] = await pipe.records(pipe.graph.dlq_topic(at), 1)
    assert strange in raw.value()


async def test_unknown_fields_travel_on(kafka: str, flex: ModuleProcess) -> None:
    at = node()
    strange = PipeStream(stream_id="s-1").SerializeToString() + b"\xba\x3e\x03abc"
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        await put(pipe, at, strange)
        assert pipe.graph.finished is not None
        [raw] = await pipe.records(pipe.graph.finished, 1)
    assert b"\xba\x3e\x03abc" in raw.value()


async def test_a_node_without_a_dlq_keeps_its_letters(kafka: str, flex: ModuleProcess) -> None:
    """And a trace tells where the stream ended, and why."""
    at = node("away", name="at", dlq_config=config(1, enabled=False))
    first = node("flex", at, name="first")
    async with Pipe(kafka, [first, at], {"flex": [flex.address], "away": [f"127.0.0.1:{claim_port()}"]}) as pipe:
        id = await pipe.send()
        [letter] = await pipe.letters(1)
        traced = await Tracer(pipe.graph, pipe.engine.transport, lambda: pipe.store.letters).trace(id)
    assert letter.last.code == ErrorType.CONNECTION_REFUSED
    assert pipe.graph.dlq_topic(at) not in pipe.graph.topics
    assert [(one.where, one.node_id) for one in traced.sightings] == [
        ("first", first.id),
        ("at", at.id),
        ("dead at at", at.id),
    ]
    assert (traced.sightings[-1].place, traced.sightings[-1].hops) == (f"letter {letter.id}", 1)
    assert traced.sightings[-1].error == f"CONNECTION_REFUSED: {letter.last.message}"
    assert [(one.node, one.outcome) for one in traced.steps] == [("first", "OK")]


async def test_nodes_that_share_a_dlq_topic_are_told_apart(kafka: str) -> None:
    """A letter is asked for only where the topic does not tell: nobody dies twice in a trace."""
    shared = f"shared.dead.{claim_port()}"
    one, other = (node(name=name, dlq_config=config(1, topic=shared)) for name in ("one", "other"))
    async with Pipe(kafka, [one, other], {"flex": [f"127.0.0.1:{claim_port()}"]}) as pipe:
        id = await pipe.send()
        await pipe.letters(2)
        traced = await Tracer(pipe.graph, pipe.engine.transport, lambda: pipe.store.letters).trace(id)
    assert sorted(one.where for one in traced.sightings) == ["DLQ of one", "DLQ of other", "one", "other"]
    assert {one.topic for one in traced.sightings if one.error} == {shared}


class _HurriedClock(SystemClock):
    """The machine's clock, and as far ahead of it as a test says."""

    ahead = 0.0

    def elapsed(self) -> float:
        return super().elapsed() + self.ahead


async def test_consul_away(
    kafka: str, start_server: StartsServer, start_module: Starts, caplog: pytest.LogCaptureFixture
) -> None:
    """Cached addresses go on; a minute later the module is unavailable; when Consul is back, it is called at once."""
    consul = start_server(Consul)
    one = await start_module(consul=consul.url).started()
    at = node(patience=timedelta(seconds=1))
    clock = _HurriedClock()
    async with Pipe(kafka, [at], consul=consul.url, clock=clock) as pipe:
        first = await pipe.send("upper")
        await until(lambda: first in pipe.ended, timeout=60, what="the first is through")
        consul.kill9()
        await until(lambda: "Consul does not answer" in caplog.text, timeout=60, what="it is missed")
        second = await pipe.send("upper")
        await until(lambda: second in pipe.ended, timeout=60, what="its last answer stands")
        clock.ahead += 61
        dead = set(await pipe.send_some(RULE.failures + 2, "upper"))
        letters = await pipe.letters(len(dead))
        assert {letter.last.code for letter in letters} == {ErrorType.MODULE_UNAVAILABLE}
        assert {"Consul does not answer" in letter.last.message for letter in letters} == {True}
        consul.start()

        async def is_back() -> bool:
            """Asked of the caller, so that no stream dies of the question."""
            try:
                return bool(await pipe.engine.callers["flex"](request_for(at.id)(b""), timedelta(seconds=30)))
            except (NobodyKnown, GivenUp, NotNow):
                return False

        await until(is_back, timeout=60, what="found again")
        streams = set(await pipe.send_some(3, "upper"))
        await until(lambda: streams <= pipe.ended, timeout=60, what="streams finish again")
        assert {letter.message.correlation_id for letter in await pipe.letters(0)} == dead
        assert list(pipe.engine.callers["flex"].instances) == [one.address]


async def test_half_of_the_instances_hang(kafka: str, flex: ModuleProcess, start_module: Starts) -> None:
    """Those are left aside: a few calls are lost to them, and the others do all the work."""
    hanging = await start_module().started()
    hanging.signal(signal.SIGSTOP)
    at = node(timeout=1.0, dlq_config=config(5))
    async with Pipe(kafka, [at], {"flex": [flex.address, hanging.address]}) as pipe:
        await pipe.send_some(60, "upper")
        streams = await pipe.finished(60)
        assert await pipe.store.letters.tallies() == []
        assert pipe.engine.callers["flex"].instances[hanging.address].aside
    assert {stream.history[0].instance for stream in streams} == {flex.address}


async def test_a_module_restarts_under_load(kafka: str, start_module: Starts) -> None:
    """Streams are tried for as long as it takes to start: a process may need a minute on a machine that is busy."""
    one = await start_module().started()
    at = node(dlq_config=config(10_000, timedelta(milliseconds=50)))
    async with Pipe(kafka, [at], {"flex": [one.address]}) as pipe:
        sent = await pipe.send_some(50, "upper")
        await until(lambda: bool(pipe.ended), timeout=60, what="the first is through")
        one.kill()
        sent += await pipe.send_some(50, "upper")
        one.start()
        await one.started()
        sent += await pipe.send_some(50, "upper")

        async def all_ended() -> bool:
            assert await pipe.store.letters.tallies() == []
            return pipe.ended == set(sent)

        await until(all_ended, timeout=300, what="every stream is through")
        streams = await pipe.finished(150)
    assert {stream.stream_id for stream in streams} == set(sent)


async def put(pipe: Pipe, at: Node, value: bytes, id: str = "foreign") -> None:
    """A record of somebody else."""
    message = Message(id=id, source=pipe.graph.topic(at), body=value, enqueued_at=pipe.engine.clock.now(), key=b"k")
    await pipe.engine.transport.send([message])


async def test_an_instance_that_is_aside_is_better_than_none(flex: ModuleProcess) -> None:
    """It may be back, and its health not asked yet: no stream dies before every instance has refused it."""
    gone = f"127.0.0.1:{claim_port()}"
    caller = made_caller([gone, flex.address])
    request = ProcessRequest(stream=PipeStream(stream_id="s")).SerializeToString()
    await caller(request, timedelta(seconds=30))
    caller.instances[flex.address].pause.seconds = 3600
    caller.instances[flex.address].set_aside()
    for _ in range(RULE.failures + 1):
        _, instance = await caller(request, timedelta(seconds=30))
        assert instance == flex.address
    await caller.aclose()


async def test_kafka_away(start_server: StartsServer, flex: ModuleProcess, tmp_path: Path) -> None:
    """What a module has done meanwhile is kept and sent on when Kafka is back; nothing dies of it."""
    server = start_server(partial(Kafka, settings=_SOON))
    last = node(name="last")
    first = node("flex", last, name="first")
    impatient = f"kafka://{server.bootstrap}/?producer.message.timeout.ms=1000"
    gate = tmp_path / "gate"
    async with Pipe(server.bootstrap, [first, last], {"flex": [flex.address]}, transport=impatient) as pipe:
        refused: list[SendStatus] = []
        send = pipe.engine.transport.send

        async def watched(messages: Sequence[Message]) -> Sequence[SendResult]:
            found = await send(messages)
            refused.extend(result.status for result in found if result.status is not SendStatus.ACCEPTED)
            return found

        pipe.engine.transport.send = watched  # type: ignore[method-assign]
        sent = set(await pipe.send_some(5, "gate", gate=str(gate)))
        await until((tmp_path / "gate.reached").exists, timeout=60, what="a module works on it")
        server.kill9()
        gate.touch()
        await until(lambda: len(refused) > 1, timeout=60, what="Kafka did not take it, twice")
        assert set(refused) == {SendStatus.UNKNOWN}
        server.start()
        await until(lambda: pipe.ended >= sent, timeout=90, what="all are through")
        assert await pipe.store.letters.tallies() == []
        streams = await pipe.finished(len(sent))
    assert {step.attempt for stream in streams for step in stream.history} == {1}, "waiting for Kafka is no attempt"
