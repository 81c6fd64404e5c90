"""A worker that ends with the last message, for whoever measures how fast it gets there."""

from __future__ import annotations

from benchmarks.harness import async_rate
from redrive import Policy, Redrive
from redrive.worker import Worker


def draining(app: Redrive, source: str, total: int, policy: Policy | None = None) -> Worker:
    """A worker whose handler does nothing, and that stops when it has handled so many."""
    left = total

    @app.handler(source, policy=policy)
    async def handle(body: bytes) -> None:
        nonlocal left
        left -= 1
        if not left:
            worker.stop()

    worker = Worker(app, upkeep=False)
    return worker


def draining_in_batches(app: Redrive, source: str, total: int, size: int) -> Worker:
    """The same with a batch handler."""
    left = total

    @app.handler(source, batch=size, within="5ms")
    async def handle(bodies: list[bytes]) -> None:
        nonlocal left
        left -= len(bodies)
        if left <= 0:
            worker.stop()

    worker = Worker(app, upkeep=False)
    return worker


async def drained(app: Redrive, worker: Worker, total: int) -> float:
    """Messages a second, from opening the app until the worker has stopped and all is closed."""
    return await async_rate(total, _opened_and_run(app, worker))


async def _opened_and_run(app: Redrive, worker: Worker) -> None:
    async with app:
        await worker.run()
