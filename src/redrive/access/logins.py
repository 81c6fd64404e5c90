"""Who failed to come in: told once for each try, and answered later and later.

A token has 256 random bits, so that no number of tries finds one; what is slowed is the noise and the load of it. A
right token is never slowed, from whatever address: behind a proxy, everybody has the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Told: TypeAlias = Callable[[str, int], None]
"""Hears of an address that failed, and how often it has by now."""
_FREE = 5  # failures that are answered at once: somebody has pasted the wrong one
_SHORTEST, _LONGEST = 0.1, 5.0  # seconds
_ADDRESSES = 10_000
_WAITING = 100


class Logins:
    """Counts failures by address; at most 10,000 addresses are remembered, and 100 answers wait at a time."""

    def __init__(self, told: Told = lambda address, times: None) -> None:
        self._told = told
        self._failed: OrderedDict[str, int] = OrderedDict()
        self._waiting = 0
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def addresses(self) -> int:
        """How many are remembered."""
        return len(self._failed)

    async def failed(self, address: str) -> int:
        """Tell of a wrong token, and return, when it may be answered, how often that address failed."""
        times = self._failed.pop(address, 0) + 1
        self._failed[address] = times
        if len(self._failed) > _ADDRESSES:
            self._failed.popitem(last=False)  # the one that has been quiet for longest
        self._told(address, times)
        if (pause := pause_after(times)) and self._waiting < _WAITING:
            await self._wait(pause)
        return times

    async def _wait(self, pause: float) -> None:
        self._waiting += 1
        try:
            await self.sleep(pause)
        finally:
            self._waiting -= 1


def pause_after(times: int) -> float:
    """How many seconds the answer to that failure of an address waits."""
    return 0.0 if times <= _FREE else min(_SHORTEST * 2 ** min(times - _FREE - 1, 10), _LONGEST)
