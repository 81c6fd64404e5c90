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
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from redrive.model import Letter
from redrive.stores.sqlite import SqliteStore
from redrive.systems.pipeline import PipeStream
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.systems.pipeline.trace import Tracer
from redrive.testing.faults import Step
from redrive.testing.waiting import until
from tests.systems.pipeline.killed import Orders
from tests.systems.pipeline.world import ROOT, ModuleProcess, Pipe, config, node, plain

Starts = Callable[..., ModuleProcess]
AT_ONCE = 16
STREAMS = int(os.environ.get("REDRIVE_PIPELINE_STREAMS", "300"))
KILLS = {
    Step.RECEIVED: 2,
    Step.BEFORE_SEND: 3,  # an engine sends at most eight at once here, and has 40 to send
    Step.AFTER_SEND: 3,
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
    """The victim is a process; its heir is here."""
    last = node(name="last")
    first = node("flex", last, name="first")
    store = f"sqlite:///{place}/{step}.db"
    pipe = Pipe(kafka, [first, last], {"flex": [flex.address]}, store=SqliteStore(store))
    await pipe.engine.create_topics()
    well, bad = set(await pipe.send_some(20, "upper")), set(await pipe.send_some(5, "fail"))
    await _killed(Orders(plain(pipe), pipe.settings.of(PipelineSettings).transport, store, step, nth))
    ended: list[PipeStream] = []
    async with pipe:

        async def has_all() -> bool:
            ended[:] = await pipe.finished(0)
            return {one.stream_id for one in ended} >= well and len(ended) >= len(well) + (step is Step.AFTER_SEND)

        async def has_dead() -> bool:
            return {one.message.correlation_id for one in await pipe.letters(0)} == bad

        await until(has_all, timeout=60, what=f"{step}: all finished")
        await until(has_dead, timeout=60, what=f"{step}: the bad ones are letters")
        if step is Step.AFTER_SEND:  # sent, and not committed: the heir does it again
            await _a_repeat_is_told(pipe, ended)
    assert {one.stream_id for one in ended} == well, f"{step}: nothing that should have died got through"
    assert {len(one.history) for one in ended} == {2}
    ways = {(one.stream_id, *(done.message_id for done in one.history)) for one in ended}
    assert len(ways) == len(well), "a repeat has the ids of what it repeats"


async def _killed(orders: Orders) -> None:
    words = [sys.executable, "-m", "tests.systems.pipeline.killed", msgspec.json.encode(orders).decode()]
    victim = await asyncio.to_thread(subprocess.run, words, cwd=ROOT, timeout=300)
    assert victim.returncode == -signal.SIGKILL


async def _a_repeat_is_told(pipe: Pipe, ended: Sequence[PipeStream]) -> None:
    [(id, times)] = Counter(one.stream_id for one in ended).most_common(1)
    assert times > 1
    traced = await Tracer(pipe.graph, pipe.engine.transport, lambda: pipe.store.letters).trace(id)
    assert [one.repeat for one in traced.steps].count(True) >= 1
    assert [one.repeat for one in traced.steps].count(False) == 2, "it has passed two nodes"


async def test_streams_through_five_nodes_while_modules_are_killed(
    kafka: str, start_module: Starts, tmp_path: Path
) -> None:
    """Each goes both ways to its end, once, or is a letter; and what a module did again, the history tells."""
    instances = [start_module() for _ in range(3)]
    await asyncio.gather(*(one.started() for one in instances))
    patient = config(8, timedelta(milliseconds=100))
    last = node(name="last", dlq_config=patient)
    left = node("flex", last, name="left", dlq_config=patient)
    right = node("flex", last, name="right", dlq_config=patient)
    second = node("flex", left, right, name="second", dlq_config=patient)
    first = node("flex", second, name="first", dlq_config=patient)
    nodes, addresses = [first, second, left, right, last], [one.address for one in instances]
    tally = tmp_path / "tally"
    async with Pipe(kafka, nodes, {"flex": addresses}, lease=timedelta(seconds=60), concurrency=AT_ONCE) as pipe:
        early = {pipe.graph.topic(first), pipe.graph.topic(second)}  # what dies there ends both ways
        sent: set[str] = set()

        async def feed() -> None:
            while len(sent) < STREAMS:
                some = (pipe.send("tally", content=b"five", tally=str(tally)) for _ in range(50))
                sent.update(await asyncio.gather(*some))

        async def accounted() -> bool:
            """Both ways of each stream came to an end: the last node, or a letter."""
            ends = Counter(pipe.ends)
            for letter in await pipe.letters(0):
                ends[letter.message.correlation_id or ""] += 2 if letter.message.source in early else 1
            return feeding.done() and all(ends[id] >= 2 for id in sent)

        feeding = asyncio.create_task(feed())
        killed = await _killing(instances, until=accounted)
        await feeding
        ended, letters = await pipe.finished(1), await pipe.letters(0)
    _all_there(sent, ended, letters, [(first.id, second.id, one.id, last.id) for one in (left, right)])
    repeats = _repeats_are_told(tally, ended, letters, most=killed * len(nodes) * AT_ONCE)
    print(f"{len(sent)} streams, {killed} kills: {repeats} calls repeated, {len(letters)} letters")


async def _killing(instances: Sequence[ModuleProcess], *, until: Callable[[], Awaitable[bool]]) -> int:
    """One after the other, at random; how many."""
    rng, killed = random.Random(8), 0
    while not await until():
        victim = rng.choice(instances)
        victim.kill()
        killed += 1
        victim.start()
        await victim.started()
    assert killed
    return killed


def _all_there(
    sent: set[str], ended: Sequence[PipeStream], letters: Sequence[Letter], ways: Sequence[tuple[str, ...]]
) -> None:
    gone = Counter((one.stream_id, tuple(step.node_id for step in one.history)) for one in ended)
    assert {one.document.content for one in ended} == {b"FIVE"}
    assert set(gone.values()) == {1}, "no engine died: nothing came to its end twice"
    dead = {one.message.correlation_id for one in letters}
    assert {id for id, _ in gone} | dead == sent
    assert {id for id in sent - dead if any((id, way) not in gone for way in ways)} == set()
    assert {way for _, way in gone} <= set(ways)


def _repeats_are_told(tally: Path, ended: Sequence[PipeStream], letters: Sequence[Letter], *, most: int) -> int:
    """A call that its module was killed under is made again. The module has written down what it did."""
    done = Counter(tally.read_text().splitlines())
    least, told = Counter[str](), Counter[str]()
    travelled = [*ended, *(PipeStream.FromString(one.message.body) for one in letters)]
    steps = {(step.node_id, step.message_id): (one.stream_id, step) for one in travelled for step in one.history}
    for stream_id, step in steps.values():
        least[f"{stream_id} {step.hop - 1}"] += 1
        told[f"{stream_id} {step.hop - 1}"] += step.attempt
    for letter, stream in zip(letters, travelled[len(ended) :], strict=True):
        told[f"{stream.stream_id} {stream.hop_count}"] += letter.last.attempt
    assert {place for place, number in least.items() if done[place] < number} == set(), "what was done was written down"
    assert {place for place, number in done.items() if number > told[place]} == set(), "history has every attempt"
    repeats = (done - least).total()
    assert repeats <= most, "a kill repeats no more than what was under way"
    return repeats
