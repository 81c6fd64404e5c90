"""Every stream is accounted for, whoever is killed: an engine at each step, or modules at random.

`REDRIVE_PIPELINE_STREAMS=20000 pytest tests/systems/pipeline/test_accounts.py` is the large one.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from redrive.forensics.query import Query
from redrive.stores.sqlite import SqliteStore
from redrive.systems.pipeline import PipeStream
from redrive.testing.faults import Step
from redrive.testing.waiting import until
from tests.systems.pipeline.killed import Orders
from tests.systems.pipeline.world import ROOT, ModuleProcess, Pipe, config, node, read_topic

Starts = Callable[..., ModuleProcess]
STREAMS = int(os.environ.get("REDRIVE_PIPELINE_STREAMS", "300"))
KILLS = {
    Step.RECEIVED: 2,
    Step.BEFORE_SEND: 7,
    Step.AFTER_SEND: 7,
    Step.BEFORE_RECORD: 1,
    Step.AFTER_RECORD: 1,
    Step.BEFORE_ACK: 3,
    Step.AFTER_ACK: 3,
}
_AT_ONCE = 7  # they mostly wait for the session of the dead to end


async def test_an_engine_is_killed_at_each_step(kafka: str, flex: ModuleProcess, tmp_path: Path) -> None:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(step: Step, nth: int) -> None:
        async with room:
            await kill_at(kafka, flex, tmp_path, step, nth)

    await asyncio.gather(*(one(step, nth) for step, nth in KILLS.items()))


async def kill_at(kafka: str, flex: ModuleProcess, place: Path, step: Step, nth: int) -> None:
    last = node(name="last")
    first = node("flex", last, name="first")
    pipe = Pipe(kafka, [first, last], {"flex": [flex.address]})
    await pipe.engine.create_topics()
    well = {await pipe.send("upper") for _ in range(20)}
    bad = {await pipe.send("fail") for _ in range(5)}
    orders = Orders(_plain(pipe), kafka, f"sqlite:///{place}/{step}.db", step, nth)
    store = SqliteStore(orders.store)
    victim = _start(orders)
    assert await asyncio.wait_for(victim.wait(), 60) == -signal.SIGKILL
    heir = _start(msgspec.structs.replace(orders, step=None))
    assert pipe.graph.finished is not None
    try:
        ended: list[PipeStream] = []

        def has_all() -> bool:
            ended[:] = [PipeStream.FromString(raw.value()) for raw in read_topic(kafka, pipe.graph.finished or "", 0)]
            return {one.stream_id for one in ended} >= well

        await until(lambda: asyncio.to_thread(has_all), timeout=60, what=f"{step}: all finished")

        async def has_dead() -> bool:
            letters = (await store.letters.search(Query(), limit=100)).letters
            return {one.message.correlation_id for one in letters} == bad

        await until(has_dead, timeout=60, what=f"{step}: the bad ones are letters")
    finally:
        heir.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(heir.wait(), 60) == 0
        await store.aclose()
        await pipe.engine.aclose()
    assert {one.stream_id for one in ended} == well, f"{step}: nothing that should have died got through"
    assert {len(one.history) for one in ended} == {2}
    for id, times in Counter(one.stream_id for one in ended).items():
        twins = [one for one in ended if one.stream_id == id]
        ids = {tuple(done.message_id for done in one.history) for one in twins}
        assert times == 1 or len(ids) == 1, "a repeat has the ids of what it repeats"


def _plain(pipe: Pipe) -> dict[str, Any]:
    nodes = [
        {"id": one.id, "module": "flex", "next": list(one.next), "dlq_config": {"retry_backoff": "20ms"}}
        for one in pipe.graph.nodes.values()
    ]
    modules = {name: list(addresses) for name, addresses in pipe.graph.modules.items()}
    return {"cluster": pipe.graph.cluster, "nodes": nodes, "modules": modules}


class _Child:
    """A process that is waited for without a watcher."""

    def __init__(self, orders: Orders) -> None:
        words = [sys.executable, "-m", "tests.systems.pipeline.killed", msgspec.json.encode(orders).decode()]
        self._process = subprocess.Popen(words, cwd=ROOT)

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)


def _start(orders: Orders) -> _Child:
    return _Child(orders)


async def test_streams_through_five_nodes_while_modules_are_killed(kafka: str, start_module: Starts) -> None:
    rng = random.Random(8)
    instances = [start_module() for _ in range(3)]
    for one in instances:
        await one.started()
    patient = config(8, timedelta(milliseconds=100))
    last = node(name="last", dlq_config=patient)
    left = node("flex", last, name="left", dlq_config=patient)
    right = node("flex", last, name="right", dlq_config=patient)
    second = node("flex", left, right, name="second", dlq_config=patient)
    first = node("flex", second, name="first", dlq_config=patient)
    nodes = [first, second, left, right, last]
    killed = 0
    async with Pipe(kafka, nodes, {"flex": [one.address for one in instances]}) as pipe:
        sent: set[str] = set()

        async def feed() -> None:
            while len(sent) < STREAMS:
                some = min(50, STREAMS - len(sent))
                sent.update(await asyncio.gather(*(pipe.send("upper", content=b"five") for _ in range(some))))

        feeding = asyncio.create_task(feed())

        async def accounted() -> bool:
            """Both ways of each stream came to an end: the last node, or a letter."""
            letters = await pipe.letters(0)
            dead = Counter(one.message.correlation_id for one in letters)
            # what died before the ways part ends both of them
            early = {one.message.correlation_id for one in letters if one.message.source in tops}
            return len(sent) == STREAMS and all(pipe.ends[id] + dead[id] >= 2 or id in early for id in sent)

        tops = {pipe.graph.topic(first), pipe.graph.topic(second)}
        while not await accounted():
            victim = rng.choice(instances)
            victim.kill()
            killed += 1
            victim.start()
            await victim.started()
            await asyncio.sleep(0)
        await feeding
        assert pipe.graph.finished is not None
        streams = await pipe.finished(1)
        dead = {one.message.correlation_id for one in await pipe.letters(0)}
    ways = Counter((one.stream_id, tuple(step.node_id for step in one.history)) for one in streams)
    assert {id for id, _ in ways} <= sent
    assert {way for _, way in ways} <= {(first.id, second.id, one.id, last.id) for one in (left, right)}
    assert {one.document.content for one in streams} == {b"FIVE"}
    assert {id for id in sent - dead if sum(one == id for one, _ in ways) != 2} == set(), (
        "both ways of each, or a letter"
    )
    assert killed
