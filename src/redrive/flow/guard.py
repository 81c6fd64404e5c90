"""Pure: how a replay feels its way. A few letters first, then more in steps, and not a step further while too many die.

    canary   so many letters go first, and their fate is awaited
    ramp     then so many percent of the selection, step by step; each step is awaited before the next
    share    when more than this share of a step's letters die again, the replay pauses and somebody has to look

What nobody tells (a consumer that is not ours) counts neither way.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil

from msgspec import Struct

from redrive.errors import UsageError

ENOUGH = 100
"""Outcomes after which a share means something. Of a smaller step all of it counts."""
BY_ITSELF = 100
"""A replay of more letters than this is guarded, if nobody says otherwise."""
MOST = 1_000_000
"""Letters in a canary, at most: more of them are no trial."""


class Guard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How careful a replay is."""

    canary: int = 5  # letters that go first
    ramp: tuple[float, ...] = (5, 20, 100)  # percent of the selection that are sent after each step
    share: float = 0.1  # of a step's letters: when more of them die again, it pauses

    def checked(self) -> Guard:
        """Itself. Raises UsageError for what makes no sense."""
        if not 1 <= self.canary <= MOST:
            raise UsageError(f"canary={self.canary}: at least 1 letter goes first, and at most {MOST:,}")
        if not 0 <= self.share <= 1:
            raise UsageError(f"guard={self.share:g}: the share of letters that may die again is 0% to 100%")
        rises = all(low < high for low, high in zip(self.ramp, self.ramp[1:], strict=False))
        if not all(0 < step <= 100 for step in self.ramp) or not rises:
            steps = ",".join(f"{step:g}" for step in self.ramp)
            raise UsageError(f"ramp={steps}: percent of the selection, each more than the one before, such as 5,20,100")
        return self

    def steps(self, total: int) -> tuple[int, ...]:
        """How many letters are gone after each step; the last step is all of them."""
        wanted = [self.canary, *(ceil(total * percent / 100) for percent in self.ramp), total]
        return tuple(sorted({min(step, total) for step in wanted}))


class Fates(Struct, frozen=True, kw_only=True):
    """What became of a replay's letters so far."""

    selected: int = 0  # their turn has not come
    sent: int = 0  # on their way: no outcome is known yet
    resolved: int = 0
    failed: int = 0  # died again
    skipped: int = 0
    untold: int = 0  # of the sent: nobody will tell what became of them

    @property
    def gone(self) -> int:
        """Those whose turn has come."""
        return self.sent + self.resolved + self.failed + self.skipped

    @property
    def known(self) -> int:
        return self.resolved + self.failed

    @property
    def outstanding(self) -> int:
        """Those whose outcome will still be told."""
        return max(self.sent - self.untold, 0)


class Baseline(Struct, frozen=True, kw_only=True):
    """What was known when a step began, or when somebody said that it goes on: the guard counts from there."""

    resolved: int = 0
    failed: int = 0
    excused: int = 0  # outcomes that had not come by then, and are not waited for
    at: datetime | None = None  # when that was

    @classmethod
    def of(cls, fates: Fates, at: datetime) -> Baseline:
        """What is known now. What is on its way by now is not waited for."""
        return cls(resolved=fates.resolved, failed=fates.failed, excused=fates.outstanding, at=at)


def awaited(fates: Fates, base: Baseline) -> int:
    """How many outcomes a step waits for."""
    return max(fates.outstanding - base.excused, 0)


def crosses(guard: Guard, size: int, fates: Fates, base: Baseline) -> bool:
    """Whether too many letters of a step of that size died again.

    A step that has few outcomes yet is judged as if the others were going to succeed, up to ENOUGH of them: the first
    death of ten thousand proves nothing, the first of five is a fifth of them.
    """
    failed = fates.failed - base.failed
    known = failed + fates.resolved - base.resolved
    return failed > guard.share * max(known, min(size, ENOUGH))
