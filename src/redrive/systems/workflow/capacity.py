"""How full a queue is, without asking its store each time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from redrive.clock import Clock
from redrive.errors import StoreUnavailable
from redrive.stores.base import Store, Tally
from redrive.systems.workflow.errors import QueueFull
from redrive.systems.workflow.statistics import open_count
from redrive.systems.workflow.task import SOURCE
from redrive.telemetry.events import Events, QueueMeasured

_TRUSTED_FOR = 5.0  # seconds: other processes may fill the same queue


class Capacity:
    """Counts what this process put in on top of what the store last said; asks the store again before it refuses."""

    def __init__(self, store: Store, max_size: int, clock: Clock, events: Events) -> None:
        self._store = store
        self.max_size = max_size
        self._clock = clock
        self._events = events
        self._open = 0
        self._coming = 0  # on their way into the store
        self._asked_at: float | None = None

    @asynccontextmanager
    async def for_one(self, task_id: str) -> AsyncIterator[None]:
        """Reserve capacity for one more, given back if what is done with it fails. Raises QueueFull."""
        if self._is_stale or self._open >= self.max_size:
            await self._ask()
        if self._open >= self.max_size:
            raise QueueFull(task_id, self.max_size)
        self._open += 1
        self._coming += 1
        try:
            yield
        except BaseException:
            self._open -= 1
            raise
        finally:
            self._coming -= 1

    async def measure(self) -> None:
        """Ask the store, and emit how full the queue is."""
        self.learn(await self._store.letters.tallies())

    def learn(self, tallies: Sequence[Tally]) -> None:
        """Count from what the store says, and emit how full the queue is."""
        size = open_count(tallies)
        self._open = size + self._coming
        self._asked_at = self._clock.elapsed()
        self._events.emit(QueueMeasured(name=SOURCE, size=size, most=self.max_size))

    def forget(self) -> None:
        self._asked_at = None

    @property
    def _is_stale(self) -> bool:
        return self._asked_at is None or self._clock.elapsed() - self._asked_at >= _TRUSTED_FOR

    async def _ask(self) -> None:
        try:
            await self.measure()
        except StoreUnavailable:  # as last seen: a task is rather kept than refused
            self._asked_at = self._clock.elapsed()
