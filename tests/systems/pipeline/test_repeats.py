"""After a crash only what was begun is done again: what is finished above the committed offset is remembered."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from redrive.stores.sqlite import SqliteStore
from redrive.systems.pipeline import Node
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.testing.waiting import until
from redrive.transports.kafka.finished import finished_in
from tests.systems.pipeline.killed import Orders
from tests.systems.pipeline.world import ROOT, ModuleProcess, Pipe, config, node, plain

STREAMS = 200


async def test_a_stream_in_retry_does_not_make_others_repeat(kafka: str, flex: ModuleProcess, tmp_path: Path) -> None:
    """It holds the committed offset back for as long as it waits; a kill does not undo what is behind it."""
    at = node(name="at", dlq_config=config(3))
    store, tally = f"sqlite:///{tmp_path}/redrive.db", tmp_path / "tally"
    pipe = Pipe(kafka, [at], {"flex": [flex.address]}, store=SqliteStore(store), partitions=1)
    await pipe.engine.create_topics()
    await pipe.send("fail")
    sent = await pipe.send_some(STREAMS, "tally", tally=str(tally))
    orders = Orders(patient(pipe), pipe.settings.of(PipelineSettings).transport, store)
    words = [sys.executable, "-m", "tests.systems.pipeline.killed", msgspec.json.encode(orders).decode()]
    victim = await asyncio.create_subprocess_exec(*words, cwd=ROOT)
    try:
        await until(lambda: _is_known(pipe, at), timeout=120, what="all are finished, and it is known")
    finally:
        victim.kill()
        await victim.wait()
    async with pipe:
        last = await pipe.send("tally", tally=str(tally))
        await until(lambda: last in pipe.ended, timeout=120, what="the heir has come to the end")
        [letter] = await pipe.letters(1)
    calls = Counter(line.partition(" ")[0] for line in tally.read_text().splitlines())
    assert calls == dict.fromkeys([*sent, last], 1)
    assert letter.last.attempt == 3, "what was begun is done again"


def patient(pipe: Pipe) -> dict[str, Any]:
    """The graph for the one that is killed: a retry there comes in an hour."""
    graph = plain(pipe)
    graph["nodes"][0]["dlq_config"] = {"retry_backoff": "1h"}
    return graph


async def _is_known(pipe: Pipe, at: Node) -> bool:
    return await asyncio.to_thread(remembered, pipe, at) == STREAMS


def remembered(pipe: Pipe, at: Node) -> int:
    """How many are known to be finished above the committed offset."""
    group = pipe.settings.of(PipelineSettings).group
    consumer = Consumer({"bootstrap.servers": pipe.kafka, "group.id": group})
    try:
        [found] = consumer.committed([TopicPartition(pipe.graph.topic(at), 0)], timeout=20)
    except KafkaException:  # the coordinator of a group that is new may not be ready
        return 0
    finally:
        consumer.close()
    return sum(end - start for start, end in finished_in(found.metadata, found.offset).runs)
