"""Automatic retries of several processes on one database: together they send no more at once than one may."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from redrive.clock import SystemClock
from redrive.model import Done, State, letter_id
from redrive.registry import open_store, open_transport
from redrive.testing.builders import make_letter, make_message
from redrive.transports.base import Settlement

_PARALLEL, _LETTERS = 5, 60


async def test_three_processes_send_no_more_at_once_than_one_may(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path / 'redrive.db'}", SystemClock()
    store, transport = open_store(url), open_transport(url, clock=clock, lease=timedelta(minutes=1))
    due = clock.now()
    await store.letters.record([make_letter(make_message(), at=due, next_retry_at=due) for _ in range(_LETTERS)])
    seen: Counter[str] = Counter()
    async with _processes(url, 3):
        while len(seen) < _LETTERS:
            deliveries = await asyncio.wait_for(transport.receive("orders", 100), 60)
            assert (await transport.depths())["orders"].total <= _PARALLEL
            seen.update(delivery.message.id for delivery in deliveries)
            await transport.settle([Settlement(delivery, Done()) for delivery in deliveries])
            ids = [letter_id("orders", delivery.message.id) for delivery in deliveries]
            await store.letters.move(ids, expect=[State.RETRYING], to=State.RESOLVED, now=clock.now())
    assert set(seen.values()) == {1}
    await transport.aclose()
    await store.aclose()


@asynccontextmanager
async def _processes(url: str, number: int) -> AsyncIterator[None]:
    command = (sys.executable, "-m", "tests.trouble.retry_process", url, str(_PARALLEL))
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(number)]
    try:
        yield
        assert [process.returncode for process in processes] == [None] * number, "one ended by itself"
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()
