"""Waiting for something to be so, and never for a while."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

Condition = Callable[[], bool | Awaitable[bool]]


async def until(condition: Condition, *, timeout: float = 120.0, what: str = "") -> None:
    """Return as soon as it holds. It is asked again and again, because it may come true in another process."""
    try:
        async with asyncio.timeout(timeout):
            while not await _holds(condition):  # noqa: ASYNC110 - the other process has no event of ours
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"after {timeout:g} s still not so: {what or inspect.getsource(condition)}") from None


async def _holds(condition: Condition) -> bool:
    answer = condition()
    return answer if isinstance(answer, bool) else await answer
