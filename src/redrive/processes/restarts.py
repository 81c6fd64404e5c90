"""When a process that died is started again: after a pause that grows, and not without end."""

from __future__ import annotations

from collections import deque

from redrive.clock import Pause
from redrive.config.settings import Processes


class Restarts:
    """The deaths of one process. Its times are seconds on a clock that never goes backwards."""

    def __init__(self, rule: Processes) -> None:
        self._healthy = rule.healthy.total_seconds()
        self._within = rule.within.total_seconds()
        self._most = rule.deaths
        self._pause = Pause(rule.pause.total_seconds(), rule.longest_pause.total_seconds())
        self._deaths: deque[float] = deque()

    def died(self, at: float, lived: float) -> float | None:
        """How many seconds to wait before the next start; None: it died too often, and is not started again."""
        if lived >= self._healthy:
            self._pause.reset()
        self._deaths.append(at)
        while self._deaths[0] <= at - self._within:
            self._deaths.popleft()
        if self._most is not None and len(self._deaths) >= self._most:
            return None
        return self._pause.next()

    def forget(self) -> None:
        """Start anew: it is other code now."""
        self._deaths.clear()
        self._pause.reset()
