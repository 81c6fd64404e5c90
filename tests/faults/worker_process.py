"""A worker that can be told where to die. Started as `python -m tests.faults.worker_process '<JSON of Orders>'`.

It handles until nothing is queued, on its way or due, and then ends by itself with code 0.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

import redrive.flow.replay
import redrive.flow.running
import redrive.upkeep.loop
from redrive import Again, Message, Permanent, Policy, Redrive, Transient, constant, immediate
from redrive.clock import SystemClock
from redrive.config.settings import Settings, Upkeep
from redrive.flow.replay import Replays, ReplayState
from redrive.forensics.query import Query
from redrive.model import State
from redrive.registry import open_store, open_transport
from redrive.stores.base import Store
from redrive.telemetry.events import Event, LeaseLost, LetterResolved, LettersMoved
from redrive.testing.faults import FaultyStore, FaultyTransport, Killer, Step, faulty_handler
from redrive.transports.base import Transport
from redrive.worker import Worker

SOURCE = "orders"
LEASE = timedelta(seconds=2)
BATCH, CONCURRENCY, PARALLEL = 20, 4, 20
_FOREVER = datetime(9000, 1, 1, tzinfo=UTC)


class Orders(msgspec.Struct, frozen=True):
    """What a worker process is told."""

    directory: str
    step: Step | None = None
    nth: int = 1
    transport: str = ""  # its URL, where the queue is not in the file with the letters
    store: str = ""  # its URL, where the letters are not in the file
    attempts: int = 5
    seconds: float = 0.0  # that one attempt takes

    @property
    def url(self) -> str:
        return f"sqlite:///{self.directory}/redrive.db"

    @property
    def done(self) -> Path:
        """Gets a line with the id for each success, before the handler returns."""
        return Path(self.directory, "done")

    @property
    def events(self) -> Path:
        """Gets a line for each letter resolved, each lease lost and each rescue of claims."""
        return Path(self.directory, "events")


def transport_of(orders: Orders) -> Transport:
    return open_transport(orders.transport or orders.url, clock=SystemClock(), lease=LEASE)


def store_of(orders: Orders) -> Store:
    return open_store(orders.store or orders.url)


def settings() -> Settings:
    upkeep = Upkeep(interval=timedelta(milliseconds=20), lease=timedelta(seconds=1), parallel=PARALLEL)
    return Settings(batch=BATCH, concurrency=CONCURRENCY, lease=LEASE, upkeep=upkeep)


async def main(orders: Orders) -> None:
    redrive.upkeep.loop._RESCUE_EVERY = timedelta(milliseconds=100)
    redrive.flow.replay.LEASE = redrive.flow.running.LEASE = timedelta(seconds=1)
    probe, clock = Killer(orders.step, orders.nth), SystemClock()
    transport, store = transport_of(orders), store_of(orders)
    app = Redrive(
        transport=FaultyTransport(transport, probe), store=FaultyStore(store, probe), settings=settings(), clock=clock
    )
    app.events.subscribe(lambda event: _note(orders.events, event))
    policy = Policy(attempts=orders.attempts, backoff=immediate(), again=Again(3, constant("10ms")))

    async def handle(body: dict[str, str], message: Message) -> None:
        await asyncio.sleep(orders.seconds)
        _act(message)
        _append(orders.done, message.id)

    app.handler(SOURCE, policy=policy)(faulty_handler(handle, probe))
    async with app:
        worker = Worker(app, grace=timedelta(seconds=10))
        running = asyncio.create_task(worker.run())
        _append(orders.events, "started")
        await _until_quiet(app, transport, store)
        worker.stop()
        await running


def _act(message: Message) -> None:
    """What becomes of a message stands in its id, and in how often it was tried."""
    was_retried = message.header("redrive-retries") not in (None, b"0")
    match message.id.partition("-")[0]:
        case "once" if message.attempt == 1:
            raise Transient("it works the second time")
        case "again" if not was_retried:
            raise Transient("it works after it was buried and retried")
        case "never" | "dead":
            raise Permanent("it never works")


async def _until_quiet(app: Redrive, transport: Transport, store: Store) -> None:
    """Nothing queued, on its way or due, twice in a row: between two looks a message can change places."""
    quiet = 0
    while quiet < 2:
        await asyncio.sleep(0.02)
        quiet = quiet + 1 if await _is_quiet(app, transport, store) else 0


async def _is_quiet(app: Redrive, transport: Transport, store: Store) -> bool:
    if sum(depth.total for depth in (await transport.depths()).values()):
        return False
    flying = Query(states=(State.RETRYING, State.REPLAYING))
    due = Query(states=(State.PENDING,), due=_FOREVER)
    if await store.letters.count(flying) or await store.letters.count(due):
        return False
    replays = await Replays(store, app.transports, app.events, app.clock).list()
    return all(replay.state is not ReplayState.RUNNING for replay in replays)


def _note(path: Path, event: Event) -> None:
    match event:
        case LetterResolved(letter=letter):
            _append(path, f"resolved {letter}")
        case LeaseLost(messages=messages):
            for id in messages:
                _append(path, f"lost {id}")
        case LettersMoved(actor="rescue", count=count):
            _append(path, f"rescued {count}")


def _append(path: Path, line: str) -> None:
    """One write with O_APPEND: whole, or not at all, whoever else writes."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Orders)))
