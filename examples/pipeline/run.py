"""Three modules, each a process, and an engine that lets documents travel through them.

    python run.py kafka://127.0.0.1:9092

One module is killed on the way: what comes to it dies, waits in its DLQ, and is sent back when the module is back.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace

from redrive.config import load
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from redrive.systems.pipeline import Document, Engine, Graph
from redrive.systems.pipeline.dlq import dead_streams
from redrive.testing.waiting import until

HERE = Path(__file__).parent
STORE = "sqlite:///pipeline.db"


class Running:
    """A module as a process of its own: `redrive pipeline module parse:module`."""

    def __init__(self, name: str, port: int = 0) -> None:
        self.name = name
        self._words = [sys.executable, "-m", "redrive", "pipeline", "module", f"{name}:module"]
        self.address = ""
        self.start(port)

    def start(self, port: int) -> None:
        self._process = subprocess.Popen(
            [*self._words, "--port", str(port)], cwd=HERE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split()[-1]
        print(f"module {self.name} on {self.address}")

    def kill(self) -> int:
        self._process.kill()
        self._process.wait()
        return int(self.address.rpartition(":")[2])


async def main(kafka: str) -> None:
    modules = {name: Running(name) for name in ("parse", "shout", "count")}
    try:
        await travel(kafka, modules)
    finally:
        for one in modules.values():
            one.kill()


async def travel(kafka: str, modules: dict[str, Running]) -> None:
    graph = Graph.load(HERE / "graph.yaml")
    graph.modules = {name: (one.address,) for name, one in modules.items()}  # or let Consul find them
    settings = load()
    settings = replace(settings, store=STORE, pipeline=replace(settings.pipeline, kafka=kafka))
    engine = Engine(graph, settings)
    await engine.create_topics()
    worker = engine.worker()
    running = asyncio.create_task(worker.run())
    service = Service(engine.app)

    stream = await engine.send(Document(document_id="a.txt", content=b"one two three"))
    print(f"sent a.txt as {stream}")
    await engine.send(Document(document_id="b.bin", content=b"\xff\xfe"))
    print("sent b.bin: no text, so `parse` rejects it, and it goes on as it is")

    port = modules["shout"].kill()
    print("killed module shout")
    stream = await engine.send(Document(document_id="c.txt", content=b"four five"))

    async def is_dead() -> bool:
        return await engine.app.store.letters.count(Query(text=stream)) > 0

    await until(is_dead, what="it is dead")
    [letter] = (await engine.app.store.letters.search(Query(text=stream))).letters
    print(f"c.txt is in the DLQ of {graph.dlq_topic(graph.node('shout'))}: {letter.last.code}")

    await asyncio.to_thread(modules["shout"].start, port)
    query = await dead_streams(service, graph, graph.node("shout"))
    replay = await service.replay(query, actor="example", reason="shout is back")
    await service.run_replay(replay.id)

    async def is_resolved() -> bool:
        return await engine.app.store.letters.count(Query(ids=(letter.id,), states=(State.RESOLVED,))) == 1

    await until(is_resolved, what="it was resolved")
    print(f"replayed {replay.total}: c.txt went through after all")
    worker.stop()
    await running
    await engine.aclose()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python run.py kafka://127.0.0.1:9092")
    asyncio.run(main(sys.argv[1]))
