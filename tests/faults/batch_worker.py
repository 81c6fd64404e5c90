"""A worker with a batch handler that is killed in the middle of a batch.

Started as `python -m tests.faults.batch_worker '<JSON of Orders>'`. A body is the name of its message. The worker ends
by itself when as many are done or buried as there are.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import msgspec
from msgspec.structs import replace

from redrive import Policy, Redrive, immediate
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.testing.waiting import until
from redrive.worker import Worker

ROOT = Path(__file__).parents[2]
SIZE = 50
DEADLY = "deadly"  # kills its worker each time, in the middle of its batch
_LEASE = timedelta(seconds=2)
_MOST_STARTS = 12


class Orders(msgspec.Struct, frozen=True):
    """What a worker is told."""

    directory: str
    transport: str
    source: str
    total: int
    dies_in: int = 0  # the call in the middle of which it is killed; 0: none
    attempts: int = 3

    @property
    def done(self) -> Path:
        return Path(self.directory, "done")

    def app(self) -> Redrive:
        store = f"sqlite:///{self.directory}/letters.db"
        settings = replace(Settings(), lease=_LEASE, worker="the-worker")
        return Redrive(transport=self.transport, store=store, settings=settings)


class Account(msgspec.Struct, frozen=True):
    """What became of all of them."""

    done: Counter[str]
    letters: tuple[Letter, ...]
    starts: int


async def account(orders: Orders) -> Account:
    """Start workers until one ends by itself."""
    for starts in range(1, _MOST_STARTS + 1):
        command = [sys.executable, "-m", "tests.faults.batch_worker", msgspec.json.encode(orders).decode()]
        worker = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        code = await asyncio.wait_for(worker.wait(), 120)
        if code == 0:
            return await _counted(orders, starts)
        assert code == -signal.SIGKILL, f"it ended with {code}"
        orders = replace(orders, dies_in=0)
    raise AssertionError("workers died again and again")


async def _counted(orders: Orders, starts: int) -> Account:
    async with orders.app() as app:
        letters = (await app.store.letters.search(Query(), limit=1000)).letters
    return Account(Counter(orders.done.read_text().splitlines()), letters, starts)


# -- in the process that dies -----------------------------------------------------------------------------------------


async def main(orders: Orders) -> None:
    app, calls = orders.app(), 0
    done = os.open(orders.done, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.handler(orders.source, batch=SIZE, within="20ms", policy=Policy(attempts=orders.attempts, backoff=immediate()))
    async def store(names: list[str]) -> None:
        nonlocal calls
        calls += 1
        for place, name in enumerate(names):
            if name == DEADLY or (calls == orders.dies_in and place == len(names) // 2):
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(done, f"{name}\n".encode())

    async def is_over() -> bool:
        known = set(orders.done.read_text().splitlines())
        return len(known) + await app.store.letters.count(Query()) >= orders.total

    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await until(is_over, timeout=100, what="all are done or buried")
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Orders)))
