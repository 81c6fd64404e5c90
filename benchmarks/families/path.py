"""What the path itself costs: receive, attempt, decide and settle, with nothing slow behind them."""

from __future__ import annotations

import time
from collections import deque

from msgspec.structs import replace

from benchmarks.draining import draining
from benchmarks.harness import Cell, Measured, Scale, Target, in_loop, side_by_side
from benchmarks.samples import bodies
from redrive import Redrive
from redrive.config.settings import Settings

_BATCH = 100


def overhead(scale: Scale) -> Measured:
    """µs a message, on the memory transport, with an async handler that does nothing."""
    count = scale.of(100_000, 500)
    figures = side_by_side(
        {
            "redrive": lambda: in_loop(_redrive(count)),
            "a bare loop": lambda: in_loop(_bare(count)),
        },
        scale.rounds,
    )
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        settings={"messages": count, "batch": _BATCH, "concurrency": 10, "handler": "async, does nothing"},
        details={"floor": "the bare loop awaits the handler for each body of a deque, and does nothing else"},
    )


async def _redrive(count: int) -> float:
    settings = replace(Settings(), batch=_BATCH)
    app = Redrive(transport="memory://", store="memory://", settings=settings)
    worker = draining(app, "orders", count)
    async with app:
        await app.send_messages([app.message("orders", body) for body in bodies(count)])
        began = time.perf_counter()
        await worker.run()
        return (time.perf_counter() - began) / count * 1e6


async def _bare(count: int) -> float:
    left = count

    async def handle(order: bytes) -> None:
        nonlocal left
        left -= 1

    waiting = deque(bodies(count))
    began = time.perf_counter()
    while waiting:
        await handle(waiting.popleft())
    return (time.perf_counter() - began) / count * 1e6


CELLS = (Cell(name="path/overhead", unit="µs/message", measure=overhead, target=Target(most=15), less_is_better=True),)
