"""A ticket worker in a process of its own: it notes what it has done, and dies of a ticket that is poison."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from redrive import Message, constant
from redrive.config.settings import Settings
from redrive.systems.tickets import TicketWorker
from redrive.systems.tickets.settings import TicketSettings
from redrive.testing.waiting import until
from redrive.worker import Worker


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(step: str, worker: TicketWorker) -> None:
    """The process ends there, at once."""
    put, publish = worker.transport.counters.put, worker.transport.writer.outcomes

    async def counted(counts: Any) -> None:
        await put(counts)
        if (step == "counted" and any(counts.values())) or (step == "cleared" and not all(counts.values())):
            die()

    async def published(parcels: Any) -> Any:
        if parcels and step == "publishing":
            die()
        answer = await publish(parcels)
        if parcels and step == "published":
            die()
        return answer

    worker.transport.counters.put = counted  # type: ignore[method-assign]
    worker.transport.writer.outcomes = published  # type: ignore[method-assign]


async def main(said: dict[str, Any]) -> None:
    settings = Settings(sections=(TicketSettings(**said["tickets"]),), lease=timedelta(seconds=6))
    done = os.open(Path(said["done"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle(ticket: dict[str, Any], message: Message) -> None:
        id = ticket["ticket_id"]
        if id.endswith(":poison"):
            die()
        await asyncio.sleep(said.get("seconds", 0.0))
        if ":never" in id:
            raise TimeoutError("the engine does not answer")
        os.write(done, f"{id} {message.origin}\n".encode())

    made = TicketWorker(handle, settings, backoff=constant("5ms"))

    async def is_empty() -> bool:
        depth = (await made.app.transport().depths()).get(settings.of(TicketSettings).topic)
        return depth is not None and not depth.total

    die_at(said.get("step", ""), made)
    async with made.app as app:
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        print("started", flush=True)
        await until(is_empty, timeout=300, what="everything is committed")
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
