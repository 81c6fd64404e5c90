"""Three modules, each a process, and an engine that lets documents travel through them.

    python run.py                           # needs nothing but pip install '.[grpc,yaml]'
    python run.py kafka://127.0.0.1:9092    # the same over Kafka; redrive[kafka]

One module has a bug. What dies of it waits in its DLQ, is traced, and is sent back when the bug is mended.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from redrive.config.load import load
from redrive.forensics.query import Query
from redrive.systems.pipeline import Document, Engine, Graph
from redrive.testing.waiting import until

HERE = Path(__file__).parent
LOG = Path("modules.log")  # what the modules say
REDRIVE = [sys.executable, "-m", "redrive"]


class Running:
    """A module as a process of its own: `redrive pipeline module parse:module`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start(port=0)

    def start(self, port: int, **environment: str) -> Running:
        words = [*REDRIVE, "pipeline", "module", f"{self.name}:module", "--port", str(port)]
        with LOG.open("a") as log:
            self._process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | environment
            )
        return self

    def wait(self) -> str:
        """Gives the address that it serves on."""
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split()[-1]
        print(f"module {self.name} serves on {self.address}")
        return self.address

    def stop(self) -> int:
        """Gives the port that it had."""
        self._process.terminate()
        self._process.communicate()
        return int(self.address.rpartition(":")[2])


async def redrive(*words: str) -> None:
    """A command as you would type it in this directory."""
    print(f"\n$ redrive {' '.join(words)}", flush=True)
    process = await asyncio.create_subprocess_exec(*REDRIVE, *words)
    await process.wait()


async def main() -> None:
    modules = {name: Running(name) for name in ("parse", "shout", "count")}
    graph = Graph.load("graph.yaml")
    graph.modules = {name: (one.wait(),) for name, one in modules.items()}  # or let Consul find them
    engine = Engine(graph, load())
    await engine.create_topics()
    worker = engine.worker()
    running = asyncio.create_task(worker.run())
    try:
        await travel(engine, modules["shout"])
    finally:
        worker.stop()
        await running
        await engine.aclose()
        for one in modules.values():
            one.stop()


async def travel(engine: Engine, shout: Running) -> None:
    well = await engine.send(Document(document_id="a.txt", content=b"one two three"))
    print(f"\na.txt is stream {well}")
    rejected = await engine.send(Document(document_id="b.bin", content=b"\xff\xfe"))
    print(f"b.bin is stream {rejected}: it is no text, so `parse` rejects it, and it goes on as it is")
    bad = await engine.send(Document(document_id="c.txt", content=b"four 5"))
    print(f"c.txt is stream {bad}: `shout` fails with it (see {LOG}), is asked again, and then it is dead", flush=True)

    async def is_dead() -> bool:
        return await engine.app.store.letters.count(Query(text=bad)) > 0

    await until(is_dead, timeout=60, what="c.txt is dead")
    await redrive("groups")
    await redrive("pipeline", "trace", bad)

    print("\nThe bug is mended: version 2 of shout takes the place of version 1.")
    port = shout.stop()
    await asyncio.to_thread(shout.start(port, SHOUT_VERSION="2").wait)
    await redrive("pipeline", "replay", "shout", "--yes", "--timeout", "60s")

    async def is_at_its_end() -> bool:
        return any(one.topic == engine.graph.finished for one in await engine.transport.records(bad, None))

    await until(is_at_its_end, timeout=60, what="c.txt has passed `count` too")
    await redrive("pipeline", "trace", bad)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ["REDRIVE_PIPELINE_TRANSPORT"] = sys.argv[1]
    os.chdir(HERE)
    asyncio.run(main())
