"""A pipeline on one machine: streams in a SQLite file, no broker, and the same promises."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from redrive.config.settings import Settings
from redrive.errors import ConfigError
from redrive.forensics.query import Query
from redrive.model import Message, State
from redrive.service import Service
from redrive.stores.sqlite import SqliteStore
from redrive.systems.pipeline import Document, Engine, Node, PipeStream, Step
from redrive.systems.pipeline.dlq import Chosen, dead_streams
from redrive.systems.pipeline.metrics import depths
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.systems.pipeline.trace import Trace, Tracer
from redrive.systems.pipeline.wire import MOST_INLINE
from redrive.telemetry.events import Event, MessageBuried
from redrive.testing import faults
from redrive.testing.waiting import until
from redrive.transports.base import Depth
from tests.actors import acting
from tests.servers.ports import claim_port
from tests.systems.pipeline.killed import Orders
from tests.systems.pipeline.world import ROOT, ModuleProcess, Pipe, config, node, plain

Starts = Callable[..., ModuleProcess]
LEASE = timedelta(seconds=2)


def local(place: Path, nodes: Sequence[Node], modules: dict[str, list[str]]) -> Pipe:
    url = f"sqlite:///{place}/redrive.db"
    return Pipe("", nodes, modules, store=SqliteStore(url), lease=LEASE, transport=url)


async def traced(pipe: Pipe, id: str) -> Trace:
    return await Tracer(pipe.graph, pipe.engine.transport, lambda: pipe.store.letters).trace(id)


async def at_its_end(pipe: Pipe, id: str, ends: int = 1) -> list[PipeStream]:
    await until(lambda: pipe.ends[id] >= ends, timeout=60, what="it is at its end")
    records = await pipe.engine.transport.records(id, None)
    return [PipeStream.FromString(one.value) for one in records if one.topic == pipe.graph.finished]


async def test_streams_travel_and_part(flex: ModuleProcess, tmp_path: Path) -> None:
    left, right = node(name="left"), node(name="right")
    first = node("flex", left, right, name="first")
    async with local(tmp_path, [first, left, right], {"flex": [flex.address]}) as pipe:
        id = await pipe.send("upper", content=b"abc")
        ended = await at_its_end(pipe, id, 2)
        rejected = await pipe.send("reject")
        [stream, _] = await at_its_end(pipe, rejected, 2)
        assert await pipe.store.letters.tallies() == []
    ways = sorted([step.node_id for step in one.history] for one in ended)
    assert ways == sorted([[first.id, left.id], [first.id, right.id]])
    assert {one.document.content for one in ended} == {b"ABC"}
    assert {step.outcome for step in stream.history} == {Step.FAILED}


async def test_a_dead_stream_is_a_letter_is_traced_and_goes_back(
    flex: ModuleProcess, start_module: Starts, tmp_path: Path
) -> None:
    last = node("away", name="last", dlq_config=config(2))
    first = node("flex", last, name="first")
    port = claim_port()
    async with local(tmp_path, [first, last], {"flex": [flex.address], "away": [f"127.0.0.1:{port}"]}) as pipe:
        told: list[Event] = []
        pipe.engine.app.events.subscribe(told.append)

        async def at_rest() -> bool:
            """No node has anything to do."""
            return set(await pipe.engine.transport.depths()) <= {pipe.graph.finished}

        id = await pipe.send("upper")
        [letter] = await pipe.letters(1)
        assert (letter.last.code, letter.last.attempt, letter.message.source) == (
            "CONNECTION_REFUSED",
            2,
            pipe.graph.topic(last),
        )
        await until(
            lambda: [event.source for event in told if isinstance(event, MessageBuried)] == [pipe.graph.topic(last)],
            what="told when it is durable",
        )
        assert await depths(pipe.engine) == {first.id: 0, last.id: 1}
        await until(at_rest, timeout=60, what="acked after it was durable")
        [seen] = (await traced(pipe, id)).sightings
        assert (seen.where, seen.place, seen.hops) == ("DLQ of last", f"letter {letter.id}", 1)
        assert seen.error.startswith("CONNECTION_REFUSED: ")
        await start_module(port=port).started()
        [instance] = pipe.engine.callers["away"].instances.values()
        await until(lambda: not instance.aside, timeout=60, what="its health was asked")
        service = Service(pipe.engine.app)
        replay = await service.replay(await dead_streams(service, pipe.graph, last, Chosen()), actor=acting("test"))
        await service.run_replay(replay.id)
        await pipe.letters(1, Query(states=(State.RESOLVED,)))
        await until(at_rest, timeout=60, what="it has left the queue of the last node")
        found = await traced(pipe, id)
    assert [(one.node, one.outcome, one.repeat) for one in found.steps] == [
        ("first", "OK", False),
        ("last", "OK", False),
    ]
    assert [one.where for one in found.sightings] == ["DLQ of last", "finished"]


async def test_the_largest_document_travels_and_one_byte_more_does_not(flex: ModuleProcess, tmp_path: Path) -> None:
    """No topic of Kafka sets a limit here: ours is the one that holds."""
    at = node()
    async with local(tmp_path, [at], {"flex": [flex.address]}) as pipe:
        id = await pipe.send("upper", content=b"x" * MOST_INLINE)
        [stream] = await at_its_end(pipe, id)
        assert stream.document.content == b"X" * MOST_INLINE
        body = PipeStream(stream_id="s", document=Document(content=b"x" * (MOST_INLINE + 1))).SerializeToString()
        await pipe.engine.transport.send([Message("m", pipe.graph.topic(at), body, pipe.engine.clock.now())])
        [letter] = await pipe.letters(1)
    assert (letter.last.code, letter.last.attempt) == ("TOO_LARGE", 1)
    assert "4,194,305 bytes" in letter.last.message
    assert letter.message.body == body


async def test_an_engine_that_is_killed_loses_nothing(flex: ModuleProcess, tmp_path: Path) -> None:
    last = node(name="last")
    first = node("flex", last, name="first")
    pipe = local(tmp_path, [first, last], {"flex": [flex.address]})
    sent = {await pipe.send("upper") for _ in range(10)}
    url = pipe.settings.of(PipelineSettings).transport
    orders = Orders(plain(pipe), url, url, faults.Step.AFTER_SEND, 2, LEASE)
    words = [sys.executable, "-m", "tests.systems.pipeline.killed", msgspec.json.encode(orders).decode()]
    victim = await asyncio.to_thread(subprocess.run, words, cwd=ROOT, timeout=300)
    assert victim.returncode == -signal.SIGKILL
    async with pipe:  # it takes over when the leases of the dead have ended

        async def all_ended() -> bool:
            """The same id again, while it is queued, is no second stream."""
            return await pipe.engine.transport.depths() == {pipe.graph.finished: Depth(len(sent), 0, 0)}

        await until(all_ended, timeout=60, what="all are at their end")
        for id in sent:
            [record] = await pipe.engine.transport.records(id, None)
            assert [step.hop for step in PipeStream.FromString(record.value).history] == [1, 2]
        assert await pipe.store.letters.tallies() == []


def test_what_streams_cannot_travel_on() -> None:
    pipe = Pipe("127.0.0.1:1", [node()], {"flex": ["127.0.0.1:1"]})
    with pytest.raises(ConfigError, match=r"cannot travel on redis://.*sqlite:///pipeline\.db"):
        Engine(pipe.graph, Settings(sections=(PipelineSettings(transport="redis://127.0.0.1"),)), store="memory://")
