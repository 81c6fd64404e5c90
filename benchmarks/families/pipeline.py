"""The pipeline's engine beside a bare asyncio client of gRPC: the same no-op module, in a process of its own, the same
1 KB streams, the same number of calls at once."""

from __future__ import annotations

import asyncio
import atexit
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from itertools import count
from uuid import uuid4

from msgspec.structs import replace
from tests.servers.kafka import Kafka
from tests.servers.ports import claim_port

from benchmarks.harness import Cell, Contender, Measured, Scale, Target, in_loop, rounded, side_by_side
from redrive.config.settings import Settings
from redrive.flow.breaker import Position
from redrive.model import Message
from redrive.systems.pipeline import (
    DlqConfig,
    Document,
    Engine,
    Graph,
    Node,
    PipeStream,
    ProcessRequest,
    ProcessResponse,
)
from redrive.systems.pipeline.caller import RULE
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.systems.pipeline.wire import Tls, open_channel, process_method
from redrive.testing.waiting import until

_CONCURRENCY, _SIZE, _PARTITIONS = 64, 1000, 6
_SETTINGS = {"concurrency": _CONCURRENCY, "document": _SIZE, "partitions": _PARTITIONS}
_NOOP = """
import sys
from redrive.systems.pipeline import Module
module = Module("noop")
@module.process
async def noop(document):
    return None
module.run(port=int(sys.argv[1]), started=lambda address: print(address, flush=True))
"""
_numbers = count(1)


# -- the cells -------------------------------------------------------------------------------------------------------


def one_node(scale: Scale) -> Measured:
    """One node, and the end of the graph: Kafka in, a call, Kafka out."""
    total = scale.of(20_000, 200)
    return _beside_bare(scale, total, nodes=1)


def chain(scale: Scale) -> Measured:
    """Three nodes, one after the other; all of them in one engine."""
    total = scale.of(10_000, 100)
    return _beside_bare(scale, total, nodes=3)


def idle(scale: Scale) -> Measured:
    """The way of one stream through three nodes while nothing else travels: the median, in milliseconds."""
    figures = in_loop(_latencies(scale.of(200, 10)))
    return Measured(
        redrive=statistics.median(figures),
        peers={},
        details={"p95": statistics.quantiles(figures, n=20)[-1]},
        settings=_SETTINGS,
    )


def beside_a_dead_one(scale: Scale) -> Measured:
    """One node, while every stream of another one dies because its module is gone; beside the same graph with nothing
    to do for the other one."""
    total = scale.of(20_000, 200)
    spent: dict[str, list[float]] = {"redrive": [], "nothing dead": []}

    def contender(name: str, dead: int) -> Contender:
        def once() -> float:
            cpu: list[float] = []
            figure = in_loop(_travelled(total, 1, dead=dead, cpu=cpu))
            spent[name] += cpu
            return figure

        return once

    contenders = {"redrive": contender("redrive", total // 10), "nothing dead": contender("nothing dead", 0)}
    figures = side_by_side(contenders, scale.rounds)
    cpu = {name: rounded(statistics.median(seen) / total * 1e6) for name, seen in spent.items()}
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        details={"cpu_us_a_stream": cpu},
        settings={**_SETTINGS, "streams": total},
    )


# -- measuring -------------------------------------------------------------------------------------------------------


def _beside_bare(scale: Scale, total: int, nodes: int) -> Measured:
    figures = side_by_side(
        {
            "redrive": lambda: in_loop(_travelled(total, nodes)),
            "bare grpc.aio": lambda: in_loop(_called(total)),
        },
        scale.rounds,
    )
    settings = {**_SETTINGS, "streams": total, "nodes": nodes}
    return Measured(redrive=figures.pop("redrive"), peers=figures, settings=settings)


async def _called(total: int) -> float:
    """Calls a second of a loop that has nothing else to do."""
    channel = open_channel(_module(), Tls())
    method, left = process_method(channel), iter(range(total))

    async def caller() -> None:
        for number in left:
            await method(ProcessRequest(node_id="n", stream=_stream(number)).SerializeToString(), timeout=30)

    await caller_once(method)
    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(_CONCURRENCY)))
    figure = total / (time.perf_counter() - began)
    await channel.close(None)
    return figure


async def caller_once(method: object) -> None:
    """The connection is there before the clock runs."""
    assert callable(method)
    await method(ProcessRequest(node_id="n", stream=_stream(0)).SerializeToString(), timeout=30)


async def _travelled(total: int, nodes: int, *, dead: int | None = None, cpu: list[float] | None = None) -> float:
    """Streams a second, from the first call of a module to the end of the last stream. All of them wait in Kafka, and
    every node has its partitions, and one stream to begin with, before the first call is made.

    dead   how many streams wait for a module that is gone; None: there is no such node
    cpu    gets the seconds of CPU that the engine's process spent meanwhile
    """
    engine = _engine(nodes, beside_a_dead_one=dead is not None)
    await engine.create_topics()
    first, *others = list(engine.graph.nodes)[:nodes]
    await _fill(engine, first, total)
    for node in others:
        await _fill(engine, node, 1)
    ended, gate = _Ends(engine, total + len(others)), _Gate(engine, nodes)
    worker = engine.worker(upkeep=False)
    running = asyncio.create_task(worker.run())
    await gate.all_wait.wait()
    if dead:
        await _open_breaker(engine, dead)
    worked, began = time.process_time(), gate.open()
    await ended.all.wait()
    figure = total / (time.perf_counter() - began)
    if cpu is not None:
        cpu.append(time.process_time() - worked)
    worker.stop()
    await running
    await engine.aclose()
    return figure


async def _open_breaker(engine: Engine, dead: int) -> None:
    """So many streams wait behind it. The others have work, though it is held at the gate: none is given up for want of
    it."""
    *_, gone = engine.graph.nodes
    caller = engine.callers["gone"]
    caller._others_are_busy = lambda: True
    await _fill(engine, gone, 2 * RULE.failures)
    await until(lambda: caller.breaker.position is not Position.CLOSED, timeout=120)
    await _fill(engine, gone, dead)


async def _latencies(times: int) -> list[float]:
    engine = _engine(3)
    await engine.create_topics()
    worker = engine.worker(upkeep=False)
    running = asyncio.create_task(worker.run())
    first = next(iter(engine.graph.nodes))
    await _fill(engine, first, 1)
    await _Ends(engine, 1).all.wait()
    figures = []
    for number in range(times):
        ended = _Ends(engine, 1)
        began = time.perf_counter()
        await engine.send(_stream(number), node=first)
        await ended.all.wait()
        figures.append((time.perf_counter() - began) * 1000)
    worker.stop()
    await running
    await engine.aclose()
    return figures


class _Gate:
    """Holds the first calls of the no-op module until every node has one to make."""

    def __init__(self, engine: Engine, nodes: int) -> None:
        self.all_wait = asyncio.Event()
        self._opened = asyncio.Event()
        self._caller = caller = engine.callers["noop"]
        self._call = call = caller._on_some_instance
        waiting: set[str] = set()

        async def held(request: bytes, timeout: timedelta) -> tuple[ProcessResponse, str]:
            waiting.add(ProcessRequest.FromString(request).node_id)
            if len(waiting) == nodes:
                self.all_wait.set()
            await self._opened.wait()
            return await call(request, timeout)

        caller._on_some_instance = held  # type: ignore[method-assign]

    def open(self) -> float:
        """Now."""
        self._caller._on_some_instance = self._call  # type: ignore[method-assign]
        self._opened.set()
        return time.perf_counter()


class _Ends:
    """Sees streams come to their end in this engine."""

    def __init__(self, engine: Engine, total: int) -> None:
        self.all = asyncio.Event()
        self._left = total
        send = getattr(engine, "_bare_send", engine._outbox.send)
        engine._bare_send = send  # type: ignore[attr-defined]
        finished = engine.graph.finished

        async def noted(messages: Sequence[Message]) -> None:
            await send(messages)
            if messages[0].source == finished:
                self._ended()

        engine._outbox.send = noted  # type: ignore[method-assign]

    def _ended(self) -> None:
        self._left -= 1
        if not self._left:
            self.all.set()


def _engine(nodes: int, *, beside_a_dead_one: bool = False) -> Engine:
    ids = [str(uuid4()) for _ in range(nodes)]
    chained = [
        Node(id=id, module="noop", next=tuple(ids[at + 1 : at + 2]), timeout=timedelta(seconds=30))
        for at, id in enumerate(ids)
    ]
    if beside_a_dead_one:
        chained.append(Node(id=str(uuid4()), module="gone", dlq_config=DlqConfig(max_retries=2)))
    modules = {"noop": [_module()], "gone": [f"127.0.0.1:{claim_port()}"]}
    graph = Graph(f"bench{next(_numbers)}", chained, modules=modules)
    own = PipelineSettings(transport=f"kafka://{_kafka().bootstrap}", concurrency=_CONCURRENCY, partitions=_PARTITIONS)
    return Engine(graph, replace(Settings(), sections=(own,), batch=500), store="memory://")


async def _fill(engine: Engine, node: str, total: int) -> None:
    for begin in range(0, total, 500):
        some = range(begin, min(begin + 500, total))
        await asyncio.gather(*(engine.send(_stream(number), node=node) for number in some))


def _stream(number: int) -> PipeStream:
    return PipeStream(stream_id=f"s-{number}", document=Document(document_id="d", content=b"x" * _SIZE))


# -- what it runs on -------------------------------------------------------------------------------------------------


@cache
def _kafka() -> Kafka:
    server = Kafka().start()
    atexit.register(server.discard)
    return server


@cache
def _module() -> str:
    process = subprocess.Popen([sys.executable, "-c", _NOOP, str(claim_port())], stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    assert process.stdout is not None
    return process.stdout.readline().strip()


CELLS = [
    Cell(name="pipeline/one-node", unit="streams/s", measure=one_node, target=Target(ratio=0.6)),
    Cell(name="pipeline/chain", unit="streams/s", measure=chain, target=Target(ratio=0.25)),
    Cell(name="pipeline/idle", unit="ms", measure=idle, target=Target(most=25.0), less_is_better=True),
    Cell(name="pipeline/dead-neighbour", unit="streams/s", measure=beside_a_dead_one, target=Target(ratio=0.95)),
]
