"""Time and randomness, injected everywhere, so that a test can own both."""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

# seeded by the system once, and again in a forked child: asking it for each id would cost more than the id
_chance = random.Random(os.urandom(32))
os.register_at_fork(after_in_child=lambda: _chance.seed(os.urandom(32)))
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)  # two of the 26 characters at a time


class Clock(Protocol):
    """What time it is, how to wait, and chance."""

    rng: random.Random

    def now(self) -> datetime:
        """The time of day in UTC. It can go backwards: durations come from `elapsed`."""
        ...

    def elapsed(self) -> float:
        """Seconds on a clock that never goes backwards."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long."""
        ...

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for the event, at most that long; whether it came."""
        ...

    def new_id(self) -> str:
        """An id that nobody else makes, later ones sorting after earlier ones."""
        ...


class SystemClock:
    """The machine's own time and chance."""

    def __init__(self) -> None:
        self.rng = random.Random()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await event.wait()
        except TimeoutError:
            return event.is_set()

    def new_id(self) -> str:
        milliseconds, rest = divmod(time.time_ns(), 1_000_000)
        chance = rest << 60 | _chance.getrandbits(60)  # two of one millisecond sort too
        return sortable_id(milliseconds, chance.to_bytes(10, "big"))


class Steady:
    """The time of day when it was made, and from then on only forwards, at the pace of `elapsed`.

    What is scheduled by it is neither lost nor hurried when somebody sets the machine's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._elapsed = clock.elapsed
        self._start = microseconds(clock.now()) - int(clock.elapsed() * 1e6)

    def micros(self) -> int:
        return self._start + int(self._elapsed() * 1e6)


class Pause:
    """Seconds to wait between tries of what keeps failing: each twice the one before, up to the longest."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest = shortest
        self._longest = longest
        self.seconds = shortest  # what `next` will answer

    def next(self) -> float:
        """How long to wait now; the time after that it is twice as long."""
        now, self.seconds = self.seconds, doubled(self.seconds, 1, self._longest)
        return now

    def reset(self) -> None:
        """It worked: the next pause is the shortest again."""
        self.seconds = self._shortest


def doubled(seconds: float, times: int, longest: float) -> float:
    """The pause that follows so many others, each twice the one before; never more than the longest."""
    return min(seconds * 2.0 ** min(times, 20), longest)


class SteadyClock:
    """A clock whose time of day never goes back: what waits by it is not held up when somebody sets the machine's."""

    def __init__(self, clock: Clock) -> None:
        self.rng = clock.rng
        self.elapsed = clock.elapsed
        self.sleep = clock.sleep
        self.wait = clock.wait
        self.new_id = clock.new_id
        self._now = clock.now
        self._steady = Steady(clock)

    def now(self) -> datetime:
        return max(self._now(), moment(self._steady.micros()))


def sortable_id(milliseconds: int, chance: bytes) -> str:
    """26 characters: 48 bits of time, 80 bits of chance, in an alphabet without look-alikes."""
    number = (milliseconds << 80) | int.from_bytes(chance, "big")
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])


def microseconds(moment: datetime) -> int:
    """A time as an integer that sorts and stores exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """The time of such an integer."""
    return _EPOCH + timedelta(microseconds=micros)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
