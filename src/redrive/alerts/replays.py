"""Replays that paused by themselves are alerts, whichever process ran them: the store knows."""

from __future__ import annotations

from datetime import datetime

from redrive.alerts.model import Alert
from redrive.alerts.rules import REPLAY_PAUSED, Pen
from redrive.config.settings import Alerts as Thresholds
from redrive.flow.replay_document import PausedBy, Replay, ReplayBook, ReplayState
from redrive.stores.base import Documents


class PausedReplays:
    """Looks for them. A pause by hand is somebody's will, and no alert."""

    def __init__(self, documents: Documents, thresholds: Thresholds, pen: Pen) -> None:
        self._book = ReplayBook(documents)
        self._thresholds = thresholds
        self._pen = pen
        self._told: set[str] = set()

    async def look(self, now: datetime) -> list[Alert]:
        """The alerts of the replays that are paused now. One that goes on is not reported any more, and resolves."""
        if not self._thresholds.replay_paused:
            return []
        paused = [replay for replay in await self._book.open() if _paused_itself(replay)]
        alerts = [self._alert(replay, now) for replay in paused]
        self._told = {replay.id for replay in paused}
        return alerts

    def _alert(self, replay: Replay, now: datetime) -> Alert:
        assert replay.paused is not None
        cases = {f"group {case.now_group}": f"{case.letters}: {case.now}" for case in replay.paused.compared}
        groups = {case.now_group for case in replay.paused.compared}
        return self._pen.alert(
            REPLAY_PAUSED,
            replay.id,
            f"replay {replay.id} of {replay.total:,} letters is paused: {replay.paused.why}",
            replay.paused.at,
            count=int(replay.id not in self._told),
            details={"replay": replay.id, "by": replay.paused.by, **cases},
            group=groups.pop() if len(groups) == 1 else None,
        )


def _paused_itself(replay: Replay) -> bool:
    return replay.state is ReplayState.PAUSED and replay.paused is not None and replay.paused.by is not PausedBy.HAND
