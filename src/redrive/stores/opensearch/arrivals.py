"""Numbers that say which letter came first."""

from __future__ import annotations

import time


class Arrivals:
    """Each larger than the one before; those of several processes are as well in order as their clocks agree."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, time.time_ns())
        return self._last
