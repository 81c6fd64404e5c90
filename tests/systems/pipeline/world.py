"""Modules as real processes, an engine on a real Kafka, and everything that travelled or died there."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, TopicPartition

from redrive.cli import main
from redrive.clock import Clock
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import Letter, Message
from redrive.stores.base import Store
from redrive.stores.memory import MemoryStore
from redrive.systems.pipeline import DlqConfig, DlqMessage, Document, Engine, Graph, Node, PipeStream
from redrive.systems.pipeline.kafka import options_for
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.testing.waiting import until
from redrive.transports.base import SendResult, SendStatus
from redrive.transports.kafka.writer import Writer
from redrive.worker import Worker
from tests.servers.ports import claim_port

ROOT = Path(__file__).parents[3]


class ModuleProcess:
    """An instance of a module."""

    def __init__(
        self, name: str, *, consul: str = "", port: int = 0, cert: str = "", key: str = "", ca: str = ""
    ) -> None:
        self.port = port or claim_port()
        self.address = f"127.0.0.1:{self.port}"
        self._words = [
            sys.executable,
            "-m",
            "tests.systems.pipeline.serve",
            name,
            consul,
            str(self.port),
            cert,
            key,
            ca,
        ]
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(self._words, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
        return self.process

    async def started(self) -> ModuleProcess:
        assert self.process.stdout is not None
        said = await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), 300)
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


class LastingWriter(Writer):
    """A new producer needs most of a second before it sends, so that one serves all tests."""

    async def aclose(self) -> None:
        """Others need it."""

    async def end(self) -> None:
        await super().aclose()


@cache
def shared_writer(url: str) -> LastingWriter:
    return LastingWriter(options_for(url, "tests"))


class Pipe:
    """A graph with a cluster of its own, and an engine that runs in this process."""

    def __init__(
        self,
        kafka: str,
        nodes: Sequence[Node],
        modules: dict[str, list[str]] | None = None,
        *,
        store: Store | None = None,
        lease: timedelta = timedelta(seconds=6),
        clock: Clock | None = None,
        **own: Any,
    ) -> None:
        self.kafka = kafka
        self.graph = Graph(f"t{uuid4().hex[:8]}", nodes, modules=modules)
        own_settings = PipelineSettings(**{"transport": f"kafka://{kafka}", "partitions": 2, "concurrency": 16, **own})
        self.settings = Settings(
            sections=(own_settings,),
            grace=timedelta(seconds=2),
            lease=lease,
        )
        self.store = store or MemoryStore()
        self.engine = Engine(self.graph, self.settings, store=self.store, clock=clock)
        if "transport" not in own:
            self.engine.transport.writer = shared_writer(self.settings.of(PipelineSettings).transport)  # type: ignore[attr-defined]
        self.ends: Counter[str] = Counter()  # of streams that this engine sent to their end
        self._worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None
        self._note_ends()

    def _note_ends(self) -> None:
        send, seen = self.engine.transport.send, set[str]()

        async def noted(messages: Sequence[Message]) -> Sequence[SendResult]:
            results = await send(messages)
            for message, result in zip(messages, results, strict=True):
                is_end = message.source == self.graph.finished and result.status is SendStatus.ACCEPTED
                if is_end and message.id not in seen:  # a repeat is no second end
                    seen.add(message.id)
                    self.ends[str(message.correlation_id)] += 1
            return results

        self.engine.transport.send = noted  # type: ignore[method-assign]

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

    async def send_some(self, number: int, do: str, **more: Any) -> list[str]:
        return await asyncio.gather(*(self.send(do, **more) for _ in range(number)))

    async def letters(self, number: int, query: Query | None = None) -> list[Letter]:
        """When there are so many."""

        async def found() -> bool:
            return await self.store.letters.count(query or Query()) >= number

        await until(found, timeout=60, what=f"{number} letters")
        page = await self.store.letters.search(query or Query(), limit=1000)
        letters = [*page.letters]
        while page.after is not None:
            page = await self.store.letters.search(query or Query(), after=page.after, limit=1000)
            letters += page.letters
        return letters

    async def finished(self, number: int) -> list[PipeStream]:
        assert self.graph.finished is not None
        return [PipeStream.FromString(raw.value()) for raw in await self.records(self.graph.finished, number)]

    async def dead(self, node: Node, number: int = 1) -> list[DlqMessage]:
        return [DlqMessage.FromString(raw.value()) for raw in await self.records(self.graph.dlq_topic(node), number)]

    async def records(self, topic: str, number: int) -> list[Any]:
        """Everything on the topic, when there is at least so much."""
        return await asyncio.to_thread(read_topic, self.kafka, topic, number)


def read_topic(kafka: str, topic: str, number: int, timeout: float = 60.0) -> list[Any]:
    settings = {"group.id": "test-reader", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": kafka, "fetch.wait.max.ms": 10, **settings})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
        found: list[Any] = []
        left, end = set(partitions), time.monotonic() + timeout
        while (left or len(found) < number) and time.monotonic() < end:
            for raw in consumer.consume(1000, timeout=0.05):
                if (error := raw.error()) is None:
                    found.append(raw)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(raw.partition())
        assert not left, f"{topic}: it was not read to its end"
        assert len(found) >= number, f"{topic}: {len(found)} of {number}"
        return found
    finally:
        consumer.close()


def plain(pipe: Pipe) -> dict[str, Any]:
    """The graph of the pipe as YAML has it."""
    nodes = [
        {
            "id": one.id,
            "module": one.module,
            "name": one.name,
            "next": list(one.next),
            "timeout": "10s",
            "dlq_config": {"retry_backoff": "20ms"},
        }
        for one in pipe.graph.nodes.values()
    ]
    modules = {name: list(addresses) for name, addresses in pipe.graph.modules.items()}
    return {"cluster": pipe.graph.cluster, "nodes": nodes, "modules": modules}


def written(pipe: Pipe, place: Path) -> Path:
    """The same as a file."""
    path = place / "graph.yaml"
    path.write_text(yaml.safe_dump(plain(pipe)))
    return path


async def command(env: dict[str, str], *words: str) -> Result:
    """`redrive …` in a thread: a process of its own would take a second to begin."""
    return await asyncio.to_thread(CliRunner(env=env).invoke, main, words, prog_name="redrive")


def environment(pipe: Pipe, tmp_path: Path, **more: str) -> dict[str, str]:
    """For commands and engines beside it."""
    url = f"sqlite:///{tmp_path}/redrive.db"
    return {
        "REDRIVE_STORE": url,
        "REDRIVE_TRANSPORTS_DEFAULT": url,
        "REDRIVE_PIPELINE_TRANSPORT": pipe.settings.of(PipelineSettings).transport,
        "REDRIVE_PIPELINE_PARTITIONS": "2",
        "REDRIVE_LEASE": "6s",
        "REDRIVE_PIPELINE_GRAPH": str(written(pipe, tmp_path)),
        **more,
    }
