"""A circuit breaker for each target: what keeps failing is left alone for a while, then tried with one letter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

from redrive.clock import doubled


class Position(StrEnum):
    CLOSED = "closed"  # all may pass
    OPEN = "open"  # none may
    HALF_OPEN = "half-open"  # one may, and decides


class BreakerRule(Struct, frozen=True):
    """Opens after so many failures in a row; waits, longer each time it opens again."""

    failures: int = 5
    wait: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(minutes=10)


class Breaker:
    """One target's breaker, on a clock that never goes backwards.

    moved   called with each new position once: when a verdict changes it, and when a letter is tried half-open
    """

    def __init__(
        self,
        rule: BreakerRule,
        elapsed: Callable[[], float],
        moved: Callable[[Position], None] = lambda position: None,
    ) -> None:
        self._rule = rule
        self._elapsed = elapsed
        self._moved = moved
        self._announced = Position.CLOSED
        self._failed = 0
        self._opened = 0  # times in a row
        self._until: float | None = None
        self._probing = False

    @property
    def position(self) -> Position:
        if self._until is None:
            return Position.CLOSED
        return Position.OPEN if self._elapsed() < self._until else Position.HALF_OPEN

    def capacity(self, wanted: int) -> int:
        """How many may pass now."""
        match self.position:
            case Position.CLOSED:
                return wanted
            case Position.HALF_OPEN if not self._probing:
                return min(wanted, 1)
        return 0

    def sent(self, number: int) -> None:
        """So many were let through."""
        if number and self._until is not None:
            self._probing = True
            self._announce()

    def succeeded(self) -> None:
        self._failed = self._opened = 0
        self._until = None
        self._probing = False
        self._announce()

    def failed(self) -> None:
        self._failed += 1
        position = self.position
        if position is Position.HALF_OPEN or (position is Position.CLOSED and self._failed >= self._rule.failures):
            self._open()
            self._announce()

    def forgotten(self) -> None:
        """The outcome of the letter on trial will never be known here: let another be tried."""
        self._probing = False

    def hopeful(self) -> None:
        """Another process has seen the target work: let one letter pass now."""
        if self._until is not None:
            self._until = min(self._until, self._elapsed())

    def _announce(self) -> None:
        position = self.position
        if position is not self._announced:
            self._announced = position
            self._moved(position)

    def _open(self) -> None:
        self._opened += 1
        self._probing = False
        wait, longest = self._rule.wait.total_seconds(), self._rule.longest.total_seconds()
        self._until = self._elapsed() + doubled(wait, self._opened - 1, longest)
