"""How full a queue is, without asking its store each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from redrive.clock import Clock
from redrive.stores.base import Store, Tally
from redrive.systems.workflow.errors import QueueFull
from redrive.systems.workflow.statistics import open_count
from redrive.systems.workflow.task import SOURCE
from redrive.telemetry.events import Events, QueueMeasured

_TRUSTED_FOR = 5.0  # seconds: other processes may fill the same queue


class Capacity:
    """Counts what this process put in on top of what the store last said; asks the store again before it refuses.

    An answer of the store may hold or lack what was on its way while the store counted: all of that is counted on top,
    so the queue is never overfilled by this process. Before a task is refused, what is on its way arrives, and the
    store is asked once more: nothing is refused that has room.
    """

    def __init__(self, store: Store, max_size: int, clock: Clock, events: Events) -> None:
        self._store = store
        self.max_size = max_size
        self._clock = clock
        self._events = events
        self._open = 0  # at most
        self._coming = 0  # on their way into the store
        self._arrived = 0  # in the store, ever
        self._nothing_comes = asyncio.Event()
        self._nothing_comes.set()
        self._refusing = asyncio.Lock()
        self._asked_at: float | None = None

    @asynccontextmanager
    async def for_one(self, task_id: str) -> AsyncIterator[None]:
        """Reserve capacity for one more, given back if what is done with it fails. Raises QueueFull."""
        if self._is_stale:
            await self._try_to_ask()
        if self._open >= self.max_size:
            await self._ask_when_nothing_comes()
        if self._open >= self.max_size:
            raise QueueFull(task_id, self.max_size)
        self._begin()
        try:
            yield
        except BaseException:
            self._open -= 1
            raise
        else:
            self._arrived += 1
        finally:
            self._end()

    def _begin(self) -> None:
        self._open += 1
        self._coming += 1
        self._nothing_comes.clear()

    def _end(self) -> None:
        self._coming -= 1
        if not self._coming:
            self._nothing_comes.set()

    async def ask(self) -> Sequence[Tally]:
        """What the store holds of this queue; emits how full it is."""
        arrived = self._arrived
        tallies = [tally for tally in await self._store.letters.tallies() if tally.source == SOURCE]
        size = open_count(tallies)
        self._open = size + self._coming + self._arrived - arrived
        self._asked_at = self._clock.elapsed()
        self._events.emit(QueueMeasured(name=SOURCE, size=size, most=self.max_size))
        return tallies

    def forget(self) -> None:
        self._asked_at = None

    @property
    def _is_stale(self) -> bool:
        return self._asked_at is None or self._clock.elapsed() - self._asked_at >= _TRUSTED_FOR

    async def _try_to_ask(self) -> None:
        try:
            await self.ask()
        except Exception:  # as last seen: a task is rather kept than refused, and who spools it says what is wrong
            self._asked_at = self._clock.elapsed()

    async def _ask_when_nothing_comes(self) -> None:
        async with self._refusing:
            while self._open >= self.max_size and self._coming:
                await self._nothing_comes.wait()
            if self._open >= self.max_size:
                await self._try_to_ask()
