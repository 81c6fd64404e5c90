"""Numbers that say which letter came first."""

from __future__ import annotations

import time


class Arrivals:
    """Makes growing numbers; over several processes they are in order as far as their clocks agree."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, time.time_ns())
        return self._last
