"""Emits an event when a backend stops answering and when it is back; the pause between tries grows."""

from __future__ import annotations

from datetime import timedelta

from redrive.clock import Pause
from redrive.errors import Unavailable
from redrive.telemetry.events import BackendDown, BackendUp, Events

LONGEST_PAUSE = 10.0


def between_tries() -> Pause:
    """The pause between tries of a backend that does not answer."""
    return Pause(0.1, LONGEST_PAUSE)


def between_writes() -> Pause:
    """The pause before letters are written again to a store that does not answer."""
    return Pause(1.0, LONGEST_PAUSE)


class Availability:
    """What one consumer knows of its backends."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._down: str | None = None  # the backend that does not answer

    def down(self, error: Unavailable, pause: float) -> None:
        """The backend does not answer, and is tried again after the pause."""
        self._down = error.name
        self._events.emit(BackendDown(backend=error.name, why=str(error), pause=timedelta(seconds=pause)))

    def up(self) -> None:
        """A backend has answered."""
        if self._down is not None:
            self._events.emit(BackendUp(backend=self._down))
            self._down = None
