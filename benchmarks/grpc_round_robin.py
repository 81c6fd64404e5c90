"""gRPC's own `round_robin` with health checking beside the pipeline's caller, on real processes (decision record 0027).

`python -m benchmarks.grpc_round_robin` prints, for each way of calling and each trouble, how many of the calls failed,
how long they took, and how many each instance answered.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio  # type: ignore[attr-defined]

from redrive.clock import SystemClock
from redrive.systems.pipeline import Document, PipeStream, ProcessRequest, ProcessResponse
from redrive.systems.pipeline.call_pool import CallPool
from redrive.systems.pipeline.caller import Caller
from redrive.systems.pipeline.faults import NodeFault
from redrive.systems.pipeline.wire import CHANNEL, SERVICE, Tls, process_method
from redrive.telemetry.events import Events

CALLS, TOGETHER, TIMEOUT = 600, 16, 1.0
SERVICE_CONFIG = json.dumps({"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}})
REQUEST = ProcessRequest(stream=PipeStream(stream_id="s", document=Document(content=b"x"))).SerializeToString()
Call = Callable[[], Awaitable[ProcessResponse]]
Close = Callable[[], Awaitable[None]]


# -- instances --------------------------------------------------------------------------------------------------------


async def serve(kind: str) -> None:
    """One instance, which answers with its own name."""
    server = grpc.aio.server()

    async def process(request: bytes, context: Any) -> bytes:
        await asyncio.sleep(0.1 if kind == "slow" else 0.002)
        return ProcessResponse(success=True, document=Document(content=kind.encode())).SerializeToString()

    async def each(requests: Any, context: Any) -> Any:
        async for request in requests:
            yield await process(request, context)

    methods = {
        "Process": grpc.unary_unary_rpc_method_handler(process),
        "ProcessEach": grpc.stream_stream_rpc_method_handler(each),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    health = aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    status = health_pb2.HealthCheckResponse
    await health.set("", status.NOT_SERVING if kind == "unhealthy" else status.SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


class Instance:
    """A process with one instance in it."""

    async def start(self, kind: str) -> Instance:
        words = (sys.executable, "-m", "benchmarks.grpc_round_robin", kind)
        self.process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        assert self.process.stdout is not None
        self.address = f"127.0.0.1:{int(await self.process.stdout.readline())}"
        return self

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


# -- ways of calling --------------------------------------------------------------------------------------------------


class Known:
    """The addresses as Consul would tell them, now."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)

    async def __call__(self) -> tuple[str, ...]:
        return self.addresses


class Balanced:
    """A channel with `round_robin`, made anew when the addresses change: Python has no resolver of one's own."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._made_for: tuple[str, ...] = ()
        self._left: list[grpc.aio.Channel] = []  # calls on them may still run

    def channel(self) -> grpc.aio.Channel | None:
        """A new one, if the one there is no longer serves."""
        addresses = self._known.addresses
        if addresses == self._made_for:
            return None
        options = [*CHANNEL, ("grpc.service_config", SERVICE_CONFIG)]
        self._made_for = addresses
        self._left.append(grpc.aio.insecure_channel(f"ipv4:{','.join(addresses)}", options=options))
        return self._left[-1]

    async def aclose(self) -> None:
        for channel in self._left:
            await channel.close(None)


def with_round_robin(known: Known) -> tuple[Call, Close]:
    """A call of its own for each request."""
    balanced, process = Balanced(known), None

    async def call() -> ProcessResponse:
        nonlocal process
        if (channel := balanced.channel()) is not None:
            process = process_method(channel)
        assert process is not None
        answer: ProcessResponse = await process(REQUEST, timeout=TIMEOUT)
        return answer

    return call, balanced.aclose


def with_round_robin_and_streams(known: Known) -> tuple[Call, Close]:
    """Streams that stay open, as the pipeline has them."""
    balanced = Balanced(known)
    pools: list[CallPool] = []

    async def call() -> ProcessResponse:
        if (channel := balanced.channel()) is not None:
            pools.append(CallPool(channel))
        async with asyncio.timeout(TIMEOUT):
            return await pools[-1].ask(REQUEST, TIMEOUT)

    async def close() -> None:
        for pool in pools:
            pool.close()
        await balanced.aclose()

    return call, close


def with_our_caller(known: Known) -> tuple[Call, Close]:
    caller = Caller("m", known, why=str, tls=Tls(), clock=SystemClock(), events=Events())

    async def call() -> ProcessResponse:
        return (await caller(REQUEST, timedelta(seconds=TIMEOUT)))[0]

    return call, caller.aclose


# -- troubles ---------------------------------------------------------------------------------------------------------


async def run(call: Call, meanwhile: Callable[[], None] = lambda: None) -> str:
    """So many calls; a third of the way something happens."""
    answered: Counter[str] = Counter()
    failed, left = Counter[str](), iter(range(CALLS))
    seconds: list[float] = []

    async def work() -> None:
        for number in left:
            if number == CALLS // 3:
                meanwhile()
            began = time.perf_counter()
            try:
                answered[(await call()).document.content.decode()] += 1
            except (grpc.aio.AioRpcError, NodeFault, TimeoutError) as error:
                failed[_name(error)] += 1
            seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(TOGETHER)))
    took, slowest = time.perf_counter() - began, sorted(seconds)[-CALLS // 100]
    said = f"{took:6.2f} s, 99 % within {1000 * slowest:5.0f} ms, failed {failed.total():3}, answered {dict(answered)}"
    return f"{said} {dict(failed) or ''}"


def _name(error: Exception) -> str:
    return error.code().name if isinstance(error, grpc.aio.AioRpcError) else str(error)[:60] or type(error).__name__


async def main() -> None:
    for trouble in ("none", "slow", "unhealthy", "killed", "stopped", "one more", "one less"):
        for way in (with_round_robin, with_round_robin_and_streams, with_our_caller):
            print(f"{trouble:9} {way.__name__:28} {await measured(trouble, way)}", flush=True)


async def measured(trouble: str, way: Callable[[Known], tuple[Call, Close]]) -> str:
    third = trouble if trouble in ("slow", "unhealthy") else "third"
    instances = [await Instance().start(kind) for kind in ("first", "second", third)]
    addresses, victim = [instance.address for instance in instances], instances[-1].process
    known = Known(addresses[:2] if trouble == "one more" else addresses)

    def happens() -> None:
        match trouble:
            case "killed":
                victim.kill()
            case "stopped":
                victim.send_signal(signal.SIGSTOP)
            case "one more":
                known.addresses = tuple(addresses)
            case "one less":
                known.addresses = tuple(addresses[:2])

    call, close = way(known)
    said = await run(call, happens)
    await close()
    for instance in instances:
        await instance.end()
    return said


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]) if len(sys.argv) > 1 else main())
