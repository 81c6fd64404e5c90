"""How a module is called: over streams that stay open, with what `Process` promises."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import grpc
import pytest

from redrive.clock import Clock, SystemClock
from redrive.errors import NotNow
from redrive.flow.breaker import Position
from redrive.systems.pipeline import Document, Module, PipeStream, ProcessRequest, ProcessResponse
from redrive.systems.pipeline.call_pool import CallPool
from redrive.systems.pipeline.caller import RULE, Caller
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import NodeFault, fault_of
from redrive.systems.pipeline.wire import EACH, METHOD, MOST_INLINE, Tls, each_method, open_channel, request_for
from redrive.telemetry.events import Events
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from tests.servers.ports import claim_port

SOON, LONG = timedelta(seconds=0.2), timedelta(seconds=60)


def asking(text: str, size: int = 0) -> bytes:
    stream = PipeStream(stream_id="s", document=Document(document_id=text, content=b"x" * size))
    return request_for("n")(stream.SerializeToString())


class Flexible:
    """A module in this process, whose documents say what it does with them."""

    def __init__(self) -> None:
        self.module = Module("m")
        self.module.process(self._process)
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.stop = asyncio.Event()
        self.address = ""

    async def _process(self, document: Document) -> Document:
        self.asked.append(document.document_id)
        if document.document_id == "fail":
            raise RuntimeError("it fails")
        if document.document_id == "wait":
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return Document(document_id=document.document_id, content=document.content)

    @asynccontextmanager
    async def served(self, port: int = 0, **how: Any) -> AsyncIterator[asyncio.Task[None]]:
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stop.clear()
        running = asyncio.create_task(self.module.serve(port=port, started=started.set_result, stop=self.stop, **how))
        self.address = await started
        yield running
        self.stop.set()
        await running


@asynccontextmanager
async def calling(address: str, clock: Clock | None = None, **more: Any) -> AsyncIterator[Caller]:
    async def addresses() -> tuple[str, ...]:
        return (address,)

    caller = Caller("m", addresses, why=str, tls=Tls(), clock=clock or SystemClock(), events=Events(), **more)
    yield caller
    await caller.aclose()


class _Plain(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """A server that somebody else has written; it counts how it is called."""

    def __init__(self, **methods: Callable[..., Any]) -> None:
        self.calls: Counter[str] = Counter()
        self._methods = methods

    def service(self, details: Any) -> Any:
        self.calls[details.method] += 1
        name = details.method.rpartition("/")[2]
        if name not in self._methods:
            return None
        make = grpc.unary_unary_rpc_method_handler if name == "Process" else grpc.stream_stream_rpc_method_handler
        return make(self._methods[name])

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        yield f"127.0.0.1:{port}"
        await server.stop(None)


async def _done(request: bytes, context: Any) -> bytes:
    return ProcessResponse(success=True).SerializeToString()


async def test_calls_one_after_the_other_share_a_stream() -> None:
    async def each(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await _done(request, context)

    server = _Plain(Process=_done, ProcessEach=each)
    async with server.served() as address, calling(address) as caller:
        for _ in range(20):
            answer, who = await caller(asking("one"), LONG)
            assert (answer.success, who) == (True, address)
        assert server.calls == {EACH: 1}
        await asyncio.gather(*(caller(asking("one"), LONG) for _ in range(8)))
    assert server.calls == {EACH: 8}


async def test_a_module_that_knows_only_process() -> None:
    """It is found out once, however many calls begin at the same time."""
    server = _Plain(Process=_done)
    async with server.served() as address, calling(address) as caller:
        first = await asyncio.gather(*(caller(asking("one"), LONG) for _ in range(5)))
        assert [answer.success for answer, _ in first] == [True] * 5
        tried = server.calls[EACH]
        await asyncio.gather(*(caller(asking("one"), LONG) for _ in range(5)))
    assert server.calls == {EACH: tried, METHOD: 10}


async def test_a_connection_may_take_its_time() -> None:
    """TLS over a long way, or a module whose machine is busy: that is no module that cannot be reached."""
    under_way = 0

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: float) -> None:
        await asyncio.sleep(pause)
        while some := await reader.read(1 << 16):
            writer.write(some)
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way
        under_way += 1
        there, back = await asyncio.open_connection(*address.split(":"))
        await asyncio.gather(carry(reader, back, 0), carry(there, writer, 0.5), return_exceptions=True)
        under_way -= 1

    async with _Plain(Process=_done).served() as address:
        slow = await asyncio.start_server(connected, "127.0.0.1", 0)
        async with calling(f"127.0.0.1:{slow.sockets[0].getsockname()[1]}") as caller:
            answer, _ = await caller(asking("one"), LONG)
        slow.close()
        await until(lambda: not under_way)
    assert answer.success


async def test_an_error_is_that_of_one_call() -> None:
    flexible = Flexible()
    async with flexible.served(), calling(flexible.address) as caller:
        waiting = asyncio.create_task(caller(asking("wait"), LONG))
        await until(lambda: "wait" in flexible.asked)
        for _ in range(3):
            with pytest.raises(NodeFault, match="it fails") as fault:
                await caller(asking("fail"), LONG)
            assert fault.value.kind is ErrorType.RETRIES_EXHAUSTED
        flexible.gate.set()
        answer, _ = await waiting
        assert answer.document.document_id == "wait"


async def test_a_late_answer_is_nobodys() -> None:
    """What ran out of time is cancelled in the module, and the next one who asks gets an answer of his own."""
    flexible = Flexible()
    async with flexible.served(), calling(flexible.address) as caller:
        await caller(asking("warm"), LONG)

        async def is_heard() -> bool:
            with pytest.raises(NodeFault, match="DEADLINE_EXCEEDED: no answer within 200ms") as fault:
                await caller(asking("wait"), SOON)
            assert fault.value.kind is ErrorType.TIMEOUT
            return "wait" in flexible.asked

        await until(is_heard)
        await asyncio.wait_for(flexible.cancelled.wait(), 60)
        flexible.gate.set()
        for text in ("one", "two"):
            answer, _ = await caller(asking(text), LONG)
            assert answer.document.document_id == text


async def test_whoever_gives_up_takes_his_question_along() -> None:
    flexible = Flexible()
    async with flexible.served(), calling(flexible.address) as caller:
        asked = asyncio.create_task(caller(asking("wait"), LONG))
        await until(lambda: "wait" in flexible.asked)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.wait_for(flexible.cancelled.wait(), 60)
        answer, _ = await caller(asking("one"), LONG)
        assert answer.document.document_id == "one"


async def test_a_module_that_goes_answers_what_it_was_asked() -> None:
    """Open streams with nothing to do do not hold it up, and are not taken for ones that can be used."""
    flexible = Flexible()
    async with (
        flexible.served(grace=timedelta(hours=1)) as running,
        calling(flexible.address) as caller,
        open_channel(flexible.address, Tls()) as channel,
    ):
        idle = each_method(channel)()
        await idle.write(asking("idle"))
        await idle.read()
        await asyncio.gather(*(caller(asking("one"), LONG) for _ in range(4)))
        asked = asyncio.create_task(caller(asking("wait"), LONG))
        await until(lambda: "wait" in flexible.asked)
        flexible.stop.set()
        await until(idle.done, what="idle streams are ended")
        assert not asked.done()
        flexible.gate.set()
        answer, _ = await asked
        assert answer.document.document_id == "wait"
        await asyncio.wait_for(running, 60)
        with pytest.raises(NodeFault) as fault:
            await caller(asking("one"), LONG)
        assert fault.value.never_arrived
        async with flexible.served(int(flexible.address.rpartition(":")[2])):
            await until(lambda: not caller.instances[flexible.address].aside, what="it is back")
            await caller(asking("back"), LONG)
    assert flexible.asked.count("back") == 1


async def test_a_stream_that_is_not_used_is_ended() -> None:
    ended: list[bool] = []

    async def each(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        try:
            async for request in requests:
                yield await _done(request, context)
        finally:
            ended.append(True)

    server = _Plain(ProcessEach=each)
    async with server.served() as address, open_channel(address, Tls()) as channel:
        pool = CallPool(channel, idle=timedelta(milliseconds=50))
        await asyncio.gather(*(pool.ask(asking("one"), 60) for _ in range(3)))
        opened = server.calls[EACH]
        await until(lambda: len(ended) == opened, what="each of them is ended")
        answer = await pool.ask(asking("two"), 60)
        assert answer.success
        pool.close()
    assert server.calls == {EACH: opened + 1}


async def test_what_is_too_large_to_be_sent() -> None:
    flexible = Flexible()
    async with flexible.served(), calling(flexible.address) as caller:
        with pytest.raises(NodeFault, match="larger than max") as fault:
            await caller(asking("big", MOST_INLINE + (2 << 20)), LONG)
        assert fault.value.kind is ErrorType.TOO_LARGE
        answer, _ = await caller(asking("most", MOST_INLINE), LONG)
        assert len(answer.document.content) == MOST_INLINE


@pytest.mark.parametrize("only", [("Process",), ("Process", "ProcessEach")])
async def test_an_answer_that_is_none(only: tuple[str, ...]) -> None:
    async def garbage(request: bytes, context: Any) -> bytes:
        return b"\xff\xff"

    async def each(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await garbage(request, context)

    methods: dict[str, Callable[..., Any]] = {"Process": garbage, "ProcessEach": each}
    async with _Plain(**{name: methods[name] for name in only}).served() as address, calling(address) as caller:
        with pytest.raises(NodeFault, match="no ProcessResponse"):
            await caller(asking("one"), LONG)


async def test_a_module_that_ends_streams_before_it_answers() -> None:
    """Nothing was done, so that it may be asked once more; `Process` says what it has to say."""

    async def each(requests: Any, context: Any) -> None:
        return None

    server = _Plain(Process=_done, ProcessEach=each)
    async with server.served() as address, calling(address) as caller:
        for _ in range(3):
            answer, _ = await caller(asking("one"), LONG)
            assert answer.success
    assert server.calls == {EACH: 3, METHOD: 3}


def test_a_request_carries_the_stream_as_it_came() -> None:
    unknown = b"\xf2\x3f\x03abc"  # field 1022, which nobody knows
    stream = PipeStream(stream_id="s", document=Document(content=b"x" * 300)).SerializeToString() + unknown
    request = request_for("the-node")(stream)
    assert request.endswith(stream)
    read = ProcessRequest.FromString(request)
    assert (read.node_id, read.stream.stream_id, len(read.stream.document.content)) == ("the-node", "s", 300)
    assert read.stream.SerializeToString().endswith(unknown)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "grpc: received message larger than max (5000000 vs. 4194304)"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "gRPC message exceeds maximum size 4194304: 5000000"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message exceeds the maximum configured message size."),
        (grpc.StatusCode.OUT_OF_RANGE, "Error, decoded message length too large: found 5000000 bytes, the limit is …"),
    ],
)
def test_too_large_as_other_languages_say_it(code: grpc.StatusCode, details: str) -> None:
    fault = fault_of(_error(code, details), "m", "x:1")
    assert (fault.kind, fault.retryable, "document_ref" in str(fault)) == (ErrorType.TOO_LARGE, False, True)


def test_what_else_is_exhausted_may_pass() -> None:
    assert fault_of(_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "quota"), "m", "x:1").retryable


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, debug_error_string=None)


@pytest.mark.parametrize("details", ["DNS resolution failed for x", "errors resolving x: [domain name not found]"])
def test_a_name_that_nobody_knows(details: str) -> None:
    assert fault_of(_error(grpc.StatusCode.UNAVAILABLE, details), "m", "x:1").kind is ErrorType.MODULE_UNAVAILABLE


async def test_a_module_whose_health_answers_is_tried_at_once() -> None:
    """No stream dies because a breaker waits longer than the module was away: time stands still here."""
    address, flexible = f"127.0.0.1:{claim_port()}", Flexible()
    async with calling(address, ManualClock()) as caller:
        for _ in range(RULE.failures):
            with pytest.raises(NodeFault, match="refused"):
                await caller(asking("one"), LONG)
        assert caller.breaker.capacity(1) == 0, "it is open"
        async with flexible.served(int(address.rpartition(":")[2])):
            await until(lambda: caller.breaker.position is Position.HALF_OPEN, what="one may try")
            answers = await asyncio.gather(*(_held(caller, str(number)) for number in range(5)))
        assert {answer.success for answer, _ in answers} == {True}
        assert caller.breaker.position is Position.CLOSED


async def _held(caller: Caller, id: str) -> tuple[ProcessResponse, str]:
    """As an engine asks: who is given back comes again."""
    while True:
        with suppress(NotNow):
            return await caller(asking("one"), LONG, id=id, patience=LONG)


async def test_a_module_has_work_between_two_calls_too() -> None:
    """Its streams are on their way then: whoever gives up streams of a dead one is not to use the moment for all."""
    clock, flexible = ManualClock(), Flexible()
    async with flexible.served(), calling(flexible.address, clock) as caller:
        assert not caller.is_busy
        await caller(asking("one"), LONG)
        assert caller.is_busy
        await clock.advance(1)
        assert not caller.is_busy


async def test_what_a_dead_module_sheds_leaves_time_for_others() -> None:
    """A few at once and so many a second, each of them with the reason; all at once when nobody else has work."""
    clock, busy = ManualClock(), True
    async with calling("127.0.0.1:1", clock, others_are_busy=lambda: busy) as caller:
        for _ in range(RULE.failures):
            with pytest.raises(NodeFault, match="refused"):
                await caller(asking("one"), LONG)
        shed = [asyncio.create_task(caller(asking("one"), LONG)) for _ in range(30)]
        await until(lambda: any(task.done() for task in shed))
        assert sum(task.done() for task in shed) < 20
        await clock.advance(0.75)
        assert all(task.done() for task in shed)
        busy = False
        shed += [asyncio.create_task(caller(asking("one"), LONG)) for _ in range(30)]
        await asyncio.wait(shed)
    assert {str(task.exception())[:12] for task in shed} == {"never called"}
