"""Backends that do not answer: it is told when one goes away and when it is back, and the pause between tries grows."""

from __future__ import annotations

from datetime import timedelta

from redrive.errors import Unavailable
from redrive.telemetry.events import BackendDown, BackendUp, Events

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 10.0


def longer(pause: float) -> float:
    """The pause after one that was in vain."""
    return min(2 * pause, LONGEST_PAUSE)


class Availability:
    """What one consumer knows of its backends."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._down: str | None = None  # the one that does not answer

    def down(self, error: Unavailable, pause: float) -> None:
        """It is tried again after the pause."""
        self._down = error.name
        self._events.emit(BackendDown(backend=error.name, why=str(error), pause=timedelta(seconds=pause)))

    def up(self) -> None:
        """One has answered."""
        if self._down is not None:
            self._events.emit(BackendUp(backend=self._down))
            self._down = None
