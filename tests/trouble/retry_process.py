"""A process that does nothing but automatic retries: `python -m tests.trouble.retry_process URL PARALLEL`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from redrive.clock import SystemClock
from redrive.registry import open_store, open_transport
from redrive.telemetry.events import Events
from redrive.upkeep.due import Due


async def main(url: str, parallel: int) -> None:
    clock = SystemClock()
    transport = open_transport(url, clock=clock, lease=timedelta(minutes=1))
    due = Due(
        open_store(url),
        {"default": transport},
        Events(),
        clock,
        owner=clock.new_id(),
        lease=timedelta(minutes=1),
        parallel=parallel,
    )
    while True:
        await due.cycle()
        await asyncio.sleep(0.02)  # SQLite lets one write at a time, and is not fair: who never pauses starves others


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
