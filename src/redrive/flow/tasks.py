"""Tasks that run side by side, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

Tasks = Sequence[asyncio.Task[Any]]


async def until(event: asyncio.Event, tasks: Tasks) -> None:
    """Wait for the event; raises the error of a task that fails meanwhile, which is a bug of ours."""
    waiter = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not event.is_set():
                task.result()
    finally:
        waiter.cancel()


async def finish(tasks: Tasks, grace: timedelta) -> None:
    """Let them end within the grace; the rest is cancelled."""
    _, late = await asyncio.wait(tasks, timeout=grace.total_seconds())
    await cancel(list(late))


async def cancel(tasks: Tasks) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def is_to_end() -> bool:
    """Whether somebody has cancelled the current task.

    Asked after each call of a driver by tasks that go on for ever: the driver may have swallowed the cancellation, as
    `asyncio.wait_for` of Python 3.11 does if what it waits for ends just then.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
