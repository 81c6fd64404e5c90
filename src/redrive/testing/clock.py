"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TypeVar

from redrive.clock import sortable_id

T = TypeVar("T")
START = datetime(2030, 1, 1, tzinfo=UTC)
_ROUNDS = 20  # turns of the loop that what was woken gets before time goes on
_STEP = 0.05
_BREATH = 0.002  # real seconds that threads (a database's) get between two steps


class ManualClock:
    """Time, chance and ids that a test owns: each run of it sees the same."""

    def __init__(self, start: datetime = START, *, seed: int = 7) -> None:
        self.rng = random.Random(seed)
        self._wall = start
        self._micros = 0
        self._numbers = count(1)
        self._alarms: list[tuple[int, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._wall

    def elapsed(self) -> float:
        return self._micros / 1e6

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await self._alarm(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        if event.is_set():
            return True
        alarm, waiter = self._alarm(seconds), asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((alarm, waiter), return_when=asyncio.FIRST_COMPLETED)
            return waiter.done()
        finally:
            alarm.cancel()
            waiter.cancel()

    def new_id(self) -> str:
        number = next(self._numbers)
        return sortable_id(self._micros // 1000, number.to_bytes(10, "big"))

    async def advance(self, seconds: float) -> None:
        """Let that much time pass. Whoever waits is woken in order, each at its own time, and may wait anew."""
        end = self._micros + round(seconds * 1e6)
        await self._breathe()
        while self._alarms and self._alarms[0][0] <= end:
            at, _, alarm = heapq.heappop(self._alarms)
            self._move_to(at)
            if not alarm.done():
                alarm.set_result(None)
                await self._breathe()
        self._move_to(end)
        await self._breathe()

    def set_back(self, seconds: float) -> None:
        """Somebody sets the machine's clock back. Durations do not notice."""
        self._wall -= timedelta(seconds=seconds)

    @property
    def waiting(self) -> int:
        """How many wait for time to pass."""
        return sum(not alarm.done() for _, _, alarm in self._alarms)

    async def eventually(self, awaitable: Awaitable[T], *, timeout: float = 30.0) -> T:
        """Let time pass until it is done, at most for so many real seconds."""
        task = asyncio.ensure_future(awaitable)
        try:
            async with asyncio.timeout(timeout):
                while not task.done():
                    await self.advance(_STEP)
                    await asyncio.wait([task], timeout=_BREATH)
        finally:
            task.cancel()
        return task.result()

    def _alarm(self, seconds: float) -> asyncio.Future[None]:
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        at = self._micros + max(round(seconds * 1e6), 0)
        heapq.heappush(self._alarms, (at, next(self._numbers), alarm))
        return alarm

    def _move_to(self, micros: int) -> None:
        step = max(micros - self._micros, 0)
        self._micros += step
        self._wall += timedelta(microseconds=step)

    async def _breathe(self) -> None:
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
