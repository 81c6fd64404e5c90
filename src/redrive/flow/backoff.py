"""How long to wait before the next attempt: pure functions of the attempt's number and of chance."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Protocol

from msgspec import Struct

from redrive.config.durations import Duration, duration
from redrive.errors import ConfigError

_LONGEST = timedelta(days=365)


class Backoff(Protocol):
    """The delay after attempt number `attempt` failed (the first is 1), or None: do not try again."""

    def delay(self, attempt: int, rng: Random) -> timedelta | None: ...


class Never(Struct, frozen=True, tag="never"):
    """No second attempt."""

    def delay(self, attempt: int, rng: Random) -> timedelta | None:
        return None


class Curve(Struct, frozen=True, tag="curve"):
    """`base` times a factor of the attempt, never over `cap`, spread by `jitter` (0.25: ±25 %)."""

    kind: str
    base: timedelta
    cap: timedelta = _LONGEST
    jitter: float = 0.0

    def delay(self, attempt: int, rng: Random) -> timedelta | None:
        seconds = self.base.total_seconds() * self._factor(attempt)
        seconds = min(seconds, self.cap.total_seconds())
        if self.jitter:
            seconds *= 1 + self.jitter * (2 * rng.random() - 1)
        return timedelta(seconds=seconds)

    def _factor(self, attempt: int) -> float:
        if self.kind == "exponential":
            return float(2 ** min(attempt - 1, 62))  # past that every cap is long reached
        return float(attempt) if self.kind == "linear" else 1.0


class Custom(Struct, frozen=True):
    """A function of the attempt's number; what it returns may be a timedelta, '5s', or None for no more.

    One that raises or answers nonsense ends the retries: its message is kept as a letter, and the worker goes on.
    """

    function: Callable[[int], Duration | None]

    def delay(self, attempt: int, rng: Random) -> timedelta | None:
        try:
            answer = self.function(attempt)
            return None if answer is None else min(max(duration(answer), timedelta()), _LONGEST)
        except Exception:
            logging.getLogger("redrive").exception("the custom backoff %r failed", self.function)
            return None


def never() -> Backoff:
    """Wait for a person."""
    return Never()


def immediate() -> Backoff:
    """At once."""
    return Curve("constant", timedelta())


def constant(delay: Duration, *, jitter: float = 0.0) -> Backoff:
    """The same delay each time."""
    return _curve("constant", delay, _LONGEST, jitter)


def linear(base: Duration, *, cap: Duration = _LONGEST, jitter: float = 0.0) -> Backoff:
    """base, 2·base, 3·base, … up to the cap."""
    return _curve("linear", base, cap, jitter)


def exponential(base: Duration, *, cap: Duration = _LONGEST, jitter: float = 0.0) -> Backoff:
    """base, 2·base, 4·base, … up to the cap."""
    return _curve("exponential", base, cap, jitter)


def custom(function: Callable[[int], Duration | None]) -> Backoff:
    """Whatever the function says for attempt 1, 2, 3, …; None ends it."""
    return Custom(function)


def _curve(kind: str, base: Duration, cap: Duration, jitter: float) -> Backoff:
    first, most = duration(base), duration(cap)
    if not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
        raise ConfigError(f"jitter={jitter!r}: it is a share of the delay, between 0 and 1")
    if first < timedelta() or most < timedelta():
        raise ConfigError(f"a delay cannot be negative: {base!r}, cap {cap!r}")
    return Curve(kind, first, min(most, _LONGEST), jitter)
