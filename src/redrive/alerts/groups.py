"""Rules about groups: what this process buried says which to look at, the store says what all processes buried."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from redrive.alerts.model import Alert
from redrive.alerts.rules import EXHAUSTED, GROWING, NEW_GROUP, Pen, letters
from redrive.alerts.watch import Burst, Watch
from redrive.config.durations import spoken
from redrive.config.settings import Alerts as Thresholds
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import Letters

_MOST_GROUPS = 50  # looked at in one round, the largest first; the others have their turn in the next
_MOST_NEW = 20  # new groups that are alerts of their own


class Groups:
    """Asks the store about groups that got letters."""

    def __init__(self, store: Letters, thresholds: Thresholds, watch: Watch, pen: Pen) -> None:
        self._letters = store
        self._thresholds = thresholds
        self._watch = watch
        self._pen = pen
        self._growing: dict[str, Burst] = {}

    async def look(self, now: datetime) -> list[Alert]:
        """The alerts of groups that grew, or are known to grow; groups that cannot be looked at now wait."""
        found = self._watch.bursts()
        largest = sorted(found, key=lambda group: found[group].buried, reverse=True)
        chosen = {group: found.pop(group) for group in largest[:_MOST_GROUPS]}
        self._watch.give_back(found)
        try:
            return await self._looked_at(chosen, now)
        except BaseException:
            self._watch.give_back(chosen)
            raise

    def unasked(self, now: datetime) -> list[Alert]:
        """The alerts that need no store: those that the events say by themselves. The rest waits for it."""
        found = self._watch.bursts()
        least = self._thresholds.exhausted
        alerts = [self._exhausted(*group, now) for group in found.items() if least and group[1].exhausted >= least]
        for burst in found.values():
            burst.exhausted = 0
        self._watch.give_back(found)
        return alerts

    async def _looked_at(self, bursts: Mapping[str, Burst], now: datetime) -> list[Alert]:
        alerts, new = [], []
        for group, burst in bursts.items():
            new += await self._if_new(group, burst, now)
            alerts += await self._if_exhausted(group, burst, now)
        for group, burst in ({**self._growing, **bursts}).items():
            alerts += await self._if_growing(group, burst if group in bursts else _still(burst), now)
        for group, burst in bursts.items():
            self._watch.know(group, exhausted=burst.exhausted > 0)
        return alerts + self._folded(new, now)

    async def _if_new(self, group: str, burst: Burst, now: datetime) -> list[Alert]:
        if not self._thresholds.new_group or self._watch.knows(group) or not burst.buried:
            return []
        if await self._letters.count(Query(groups=(group,), before=now - self._thresholds.window)):
            return []
        summary = f"a new cause of failure in {burst.source}: {burst.error}"
        return [self._pen.alert(NEW_GROUP, group, summary, now, count=burst.buried, **_about(group, burst))]

    def _folded(self, new: list[Alert], now: datetime) -> list[Alert]:
        """Make one alert of hundreds of new groups at once."""
        if len(new) <= _MOST_NEW:
            return new
        rest = len(new) - _MOST_NEW
        many = self._pen.alert(NEW_GROUP, "(many)", f"{rest:,} more new causes of failure at once", now, count=rest)
        return [*new[:_MOST_NEW], replace(many, lasting=True)]

    async def _if_exhausted(self, group: str, burst: Burst, now: datetime) -> list[Alert]:
        least = self._thresholds.exhausted
        if least is None or not burst.exhausted:
            return []
        total = await self._letters.count(Query(groups=(group,), states=(State.EXHAUSTED,)))
        # a store may show what was written a moment later
        return [self._exhausted(group, burst, now, total)] if max(total, burst.exhausted) >= least else []

    def _exhausted(self, group: str, burst: Burst, now: datetime, total: int = 0) -> Alert:
        count = max(total, burst.exhausted)
        said = f"{letters(count)} of {burst.source} {'is' if count == 1 else 'are'} exhausted: {burst.error}"
        return self._pen.alert(EXHAUSTED, group, said, now, count=burst.exhausted, **_about(group, burst))

    async def _if_growing(self, group: str, burst: Burst, now: datetime) -> list[Alert]:
        least, window = self._thresholds.growth, self._thresholds.window
        if least is None:
            return []
        count = await self._letters.count(Query(groups=(group,), since=now - window))
        if count < least:
            self._growing.pop(group, None)
            return []
        self._growing[group] = burst
        summary = f"{burst.source} got {letters(count)} of one cause within {spoken(window)}: {burst.error}"
        return [self._pen.alert(GROWING, group, summary, now, count=burst.buried, **_about(group, burst))]


def _about(group: str, burst: Burst) -> dict[str, object]:
    details = {"group": group, "error": burst.error}
    if burst.failure is not None:
        details["category"] = str(burst.failure.category)
    return {"group": group, "source": burst.source, "details": details}


def _still(burst: Burst) -> Burst:
    """That group, as a burst with nothing new in it."""
    burst.buried = burst.exhausted = 0
    return burst
