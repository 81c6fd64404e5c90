"""Pure: when a source is in a storm, how long it is left alone, and when it may go on. No I/O, no time of its own.

calm ── too much of what it finishes is buried ──▶ storm: nobody receives anything of it
  ▲                                                  │ after a pause one worker takes one message at a time
  └──────── so many in a row succeed ◀─────── probing ◀┘
                                               └──▶ one fails: a pause twice as long
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import doubled
from redrive.policy import Storm

SHORTEST, LONGEST = timedelta(seconds=5), timedelta(minutes=5)
_SLOTS = 20


class Finished(NamedTuple):
    """How many messages were done with, and how many of them were buried."""

    done: int = 0
    buried: int = 0

    @property
    def all(self) -> int:
        return self.done + self.buried

    def and_(self, other: Finished) -> Finished:
        return Finished(self.done + other.done, self.buried + other.buried)


class Window:
    """Counts what was finished within the last so many seconds, to a twentieth of them."""

    def __init__(self, over: timedelta, elapsed: Callable[[], float]) -> None:
        self._width = over.total_seconds() / _SLOTS
        self._elapsed = elapsed
        self._slots: deque[list[int]] = deque()  # number, done, buried

    def add(self, done: int, buried: int) -> None:
        slot = int(self._elapsed() / self._width)
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append([slot, 0, 0])
        self._slots[-1][1] += done
        self._slots[-1][2] += buried

    def total(self) -> Finished:
        oldest = int(self._elapsed() / self._width) - _SLOTS
        while self._slots and self._slots[0][0] <= oldest:
            self._slots.popleft()
        return Finished(sum(slot[1] for slot in self._slots), sum(slot[2] for slot in self._slots))

    def clear(self) -> None:
        self._slots.clear()


def is_storm(rule: Storm, finished: Finished) -> bool:
    """Whether more is buried than the rule allows, of as many as it takes to say so."""
    return finished.all >= rule.at_least and finished.buried > rule.share * finished.all


def may_bury(rule: Storm, finished: Finished, wanted: int) -> int:
    """How many of those that are to be buried may be, before it is a storm."""
    for number in range(1, wanted + 1):
        if is_storm(rule, finished.and_(Finished(0, number))):
            return number - 1
    return wanted


class StormState(Struct, frozen=True, kw_only=True):
    """A storm, as the store keeps it for all workers."""

    transport: str
    source: str
    by: str  # the worker that saw it
    at: datetime
    finished: int
    buried: int
    over: timedelta
    failed: int = 0  # probes, since it began
    succeeded: int = 0  # probes in a row
    wait: timedelta = SHORTEST  # before the next probe
    probe_at: datetime | None = None  # for people: when that is, by the clock of who said so
    prober: str = ""  # who probes now

    @property
    def why(self) -> str:
        return f"{self.buried:,} of {self.finished:,} messages were buried within {self.over.total_seconds():g} s"


def after_probe(state: StormState, succeeded: bool | None, probes: int, now: datetime) -> StormState | None:
    """The storm after a message was tried; None: it is over.

    succeeded   None: nothing can be concluded, because it was given back
    """
    if succeeded and state.succeeded + 1 >= probes:
        return None
    if succeeded:
        return replace(state, succeeded=state.succeeded + 1, wait=timedelta(), probe_at=now)
    failed = state.failed + (succeeded is False)
    wait = pause_after(failed)
    return replace(state, failed=failed, succeeded=0, wait=wait, probe_at=now + wait, prober="")


def pause_after(failed: int) -> timedelta:
    """How long a source is left alone after so many probes that failed."""
    return timedelta(seconds=doubled(SHORTEST.total_seconds(), failed, LONGEST.total_seconds()))
