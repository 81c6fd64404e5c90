"""Who works on what: the workers by their heartbeats, each with what can be said of it for sure.

A beat has the time of its worker's clock, which may not be ours. Whether a worker lives is told by its beats: if their
number has grown while we looked, it does, whatever the clocks say, and the difference is shown. Only of a worker that
was looked at once the time has to be believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

LOST_AFTER = 3  # beats
_PATIENCE = 1.5  # beats within which a worker that lives says something, if its store is not slow


class WorkerState(StrEnum):
    """How a worker is."""

    RUNNING = "running"
    DRAINING = "draining"
    LOST = "lost"


class WorkingOn(Struct, frozen=True):
    """One source of a worker."""

    source: str
    transport: str
    concurrency: int
    in_hand: int
    paused: bool
    storm: bool = False  # it is the storm guard that has paused it
    rate: float = 0.0  # messages that finish a second


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker, as people and programs are shown it."""

    id: str
    worker: str
    host: str
    pid: int
    version: str
    redrive: str
    state: WorkerState
    started_at: datetime
    beat_at: datetime  # by its own clock
    clock_apart: float | None  # seconds by which its clock differs from ours, where that is known and matters
    in_hand: int
    sources: list[WorkingOn]


class Sighting(Struct, frozen=True):
    """The number of a worker's last beat, and since when we know it, on our own clock."""

    number: int
    since: float
    is_first: bool  # it has not moved since we look


class Roll:
    """Remembers the beats of every worker for as long as somebody looks."""

    def __init__(self, every: timedelta) -> None:
        self._every = every.total_seconds()
        self._seen: dict[str, Sighting] = {}

    def look(self, numbers: Mapping[str, int], elapsed: float) -> None:
        """Take note of the number of each worker's last beat."""
        seen: dict[str, Sighting] = {}
        for id, number in numbers.items():
            known = self._seen.get(id)
            if known is not None and known.number == number:
                seen[id] = known
            else:
                seen[id] = Sighting(number, elapsed, known is None)
        self._seen = seen

    def is_lost(self, id: str, age: float, elapsed: float) -> bool:
        """Whether nothing was heard of it for some beats. `age` is that of its last beat, if both clocks are right."""
        watched = elapsed - self._seen[id].since
        if watched > LOST_AFTER * self._every:
            return True
        if not self._seen[id].is_first or self._is_plausible(age):
            return False
        return age > 0 or watched > _PATIENCE * self._every

    def clock_apart(self, id: str, age: float, elapsed: float) -> float | None:
        """By how many seconds its clock is ahead of ours, if that is more than a beat explains; negative: behind."""
        seen = self._seen[id]
        if seen.is_first:  # it may just have been silent for so long; but no beat comes from the future
            return -age if age < -1 else None
        apart = (elapsed - seen.since) - age
        return apart if abs(apart) > self._every else None

    def is_unsure(self, id: str, age: float, elapsed: float) -> bool:
        """Whether it was seen once only, with a time that may be wrong, and had no time for another beat yet."""
        seen = self._seen[id]
        return seen.is_first and elapsed - seen.since <= _PATIENCE * self._every and not self._is_plausible(age)

    def _is_plausible(self, age: float) -> bool:
        """Whether a worker that lives, and has the same time as we, could have said something so long ago."""
        return -1 <= age <= LOST_AFTER * self._every
