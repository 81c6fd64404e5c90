"""What the marks of groups mean for alerts: one that has regressed is told of, one that is muted is not."""

from __future__ import annotations

from datetime import datetime

from redrive.alerts.model import Alert
from redrive.alerts.rules import REGRESSED, Pen
from redrive.config.settings import Alerts as Thresholds
from redrive.forensics.marks import Fix, GroupState, Marks, muted
from redrive.stores.base import Documents


class Regressions:
    """Reads the marks once a round. While the store is away, what was muted stays so."""

    def __init__(self, documents: Documents, thresholds: Thresholds, pen: Pen) -> None:
        self._marks = Marks(documents)
        self._thresholds = thresholds
        self._pen = pen
        self.muted: frozenset[str] = frozenset()
        """The groups that nobody is to be told of."""

    async def look(self, now: datetime) -> list[Alert]:
        """The alerts of groups that have regressed. They last until the group is fixed anew, or its fix is undone: so
        they are told of even if the process that saw it first has died."""
        marks = await self._marks.all()
        self.muted = muted(marks, now)
        if not self._thresholds.regressed:
            return []
        regressed = [mark for mark in marks.values() if mark.state(now) is GroupState.REGRESSED]
        return [self._alert(mark.group, mark.fix, now) for mark in regressed if mark.fix is not None]

    def _alert(self, group: str, fix: Fix, now: datetime) -> Alert:
        summary = (
            f"a group that was fixed in {fix.version} has regressed: letter {fix.letter} died on {fix.regressed_in}"
        )
        details = {"group": group, "version": fix.version, "died_on": fix.regressed_in, "letter": fix.letter}
        return self._pen.alert(REGRESSED, f"{group}:{fix.id}", summary, now, group=group, details=details)
