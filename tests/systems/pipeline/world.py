"""Modules as real processes, an engine on a real Kafka, and everything that travelled or died there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from redrive.config import Settings
from redrive.forensics.query import Query
from redrive.model import Letter, Message
from redrive.settings import Pipeline
from redrive.stores.memory import MemoryStore
from redrive.systems.pipeline import DlqConfig, DlqMessage, Document, Engine, Graph, Node, PipeStream
from redrive.testing.waiting import until
from redrive.worker import Worker
from tests.servers.ports import claim_port

ROOT = Path(__file__).parents[3]


class ModuleProcess:
    """An instance of a module."""

    def __init__(self, name: str, *, consul: str = "", port: int = 0, cert: str = "", key: str = "") -> None:
        self.port = port or claim_port()
        self.address = f"127.0.0.1:{self.port}"
        self._words = [sys.executable, "-m", "tests.systems.pipeline.serve", name, consul, str(self.port), cert, key]
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(self._words, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
        return self.process

    async def started(self) -> ModuleProcess:
        assert self.process.stdout is not None
        said = await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), 60)
        assert said, "the module did not start"
        return self

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As the power cord would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def config(retries: int = 3, backoff: timedelta = timedelta(milliseconds=20), **more: Any) -> DlqConfig:
    made = DlqConfig(max_retries=retries, **more)
    made.retry_backoff.FromTimedelta(backoff)
    return made


def node(module: str = "flex", *next: Node, timeout: float = 10.0, **more: Any) -> Node:
    more.setdefault("dlq_config", config())
    more.setdefault("id", str(uuid4()))
    return Node(module=module, next=tuple(one.id for one in next), timeout=timedelta(seconds=timeout), **more)


class Pipe:
    """A graph with a cluster of its own, and an engine that runs in this process."""

    def __init__(self, kafka: str, nodes: Sequence[Node], modules: dict[str, list[str]] | None = None, **own: Any):
        self.kafka = kafka
        self.graph = Graph(f"t{uuid4().hex[:8]}", nodes, modules=modules)
        self.settings = Settings(
            pipeline=Pipeline(kafka=f"kafka://{kafka}", partitions=2, concurrency=16, **own),
            grace=timedelta(seconds=2),
            lease=timedelta(seconds=6),
        )
        self.store = MemoryStore()
        self.engine = Engine(self.graph, self.settings, store=self.store)
        self.ends: Counter[str] = Counter()  # of streams that this engine sent to their end
        self._worker: Worker | None = None
        send, seen = self.engine._outbox.send, set[str]()

        async def noted(messages: Sequence[Message]) -> None:
            await send(messages)
            for one in messages:
                if one.source == self.graph.finished and one.id not in seen:  # a repeat is no second end
                    seen.add(one.id)
                    self.ends[str(one.correlation_id)] += 1

        self.engine._outbox.send = noted  # type: ignore[method-assign]
        self._task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> set[str]:
        return set(self.ends)

    async def __aenter__(self) -> Pipe:
        await self.engine.create_topics()
        self._worker = self.engine.worker()
        self._task = asyncio.create_task(self._worker.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._worker is not None
        assert self._task is not None
        self._worker.stop()
        await self._task
        await self.engine.aclose()

    async def send(self, do: str = "", *, content: bytes = b"text", node: str | None = None, **more: str) -> str:
        return await self.engine.send(Document(content=content), node=node, metadata={"do": do, **more})

    async def letters(self, number: int, query: Query | None = None) -> list[Letter]:
        """When there are so many."""

        async def found() -> bool:
            return await self.store.letters.count(query or Query()) >= number

        await until(found, timeout=60, what=f"{number} letters")
        return list((await self.store.letters.search(query or Query(), limit=1000)).letters)

    async def finished(self, number: int) -> list[PipeStream]:
        assert self.graph.finished is not None
        return [PipeStream.FromString(raw.value()) for raw in await self.records(self.graph.finished, number)]

    async def dead(self, node: Node, number: int = 1) -> list[DlqMessage]:
        return [DlqMessage.FromString(raw.value()) for raw in await self.records(self.graph.dlq_topic(node), number)]

    async def records(self, topic: str, number: int) -> list[Any]:
        """Everything on the topic, when there is at least so much."""
        return await asyncio.to_thread(read_topic, self.kafka, topic, number)


def read_topic(kafka: str, topic: str, number: int, timeout: float = 60.0) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "test-reader", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
        found: list[Any] = []
        end = time.monotonic() + timeout
        while len(found) < max(number, _reach(consumer, topic, partitions)) and time.monotonic() < end:
            found += [raw for raw in consumer.consume(1000, timeout=0.2) if raw.error() is None]
        assert len(found) >= number, f"{topic}: {len(found)} of {number}"
        return found
    finally:
        consumer.close()


def _reach(consumer: Consumer, topic: str, partitions: Any) -> int:
    """How much is there now."""
    return sum(consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=20)[1] for one in partitions)


def environment(pipe: Pipe, tmp_path: Path, **more: str) -> dict[str, str]:
    """For commands and engines in processes of their own."""
    url = f"sqlite:///{tmp_path}/redrive.db"
    return {
        **os.environ,
        "REDRIVE_STORE": url,
        "REDRIVE_TRANSPORTS_DEFAULT": url,
        "REDRIVE_PIPELINE_KAFKA": pipe.settings.pipeline.kafka,
        "REDRIVE_PIPELINE_PARTITIONS": "2",
        "REDRIVE_LEASE": "6s",
        **more,
    }
