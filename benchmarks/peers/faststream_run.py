"""What both brokers of FastStream are measured by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any


async def first_to_last(broker: Any, subscribe: Callable[[Any], Any], total: int, wait: float = 0.0) -> float:
    """Messages a second, from the first to the last. Connecting is left out, to its advantage."""
    seen, began, done = 0, 0.0, asyncio.Event()

    async def handle(body: bytes) -> None:
        nonlocal seen, began
        began = began or time.perf_counter()
        if wait:
            await asyncio.sleep(wait)
        seen += 1
        if seen == total:
            done.set()

    subscribe(handle)
    await broker.start()
    await done.wait()
    took = time.perf_counter() - began
    await broker.stop()
    return total / took
