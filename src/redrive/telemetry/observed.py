"""What a process knows of its own work: how fast messages finish, and which circuit breakers let nothing through."""

from __future__ import annotations

from collections import Counter, deque
from datetime import datetime

from msgspec import Struct

from redrive.clock import Clock
from redrive.flow.breaker import Position
from redrive.telemetry.events import BatchSettled, BreakerMoved, Event, Events

_WITHIN = 60.0  # seconds that a rate is of


class OpenBreaker(Struct, frozen=True):
    """A circuit breaker that is open, or tries one letter."""

    target: str  # transport/source, or what a system names
    position: Position
    since: datetime


class Observed:
    """Listens to the events of one process for as long as it lives."""

    def __init__(self, events: Events, clock: Clock) -> None:
        self._clock = clock
        self._finished: Counter[str] = Counter()
        self._before: deque[tuple[float, Counter[str]]] = deque([(clock.elapsed(), Counter())])
        self._breakers: dict[str, OpenBreaker] = {}
        events.subscribe(self._see)

    def rates(self) -> dict[str, float]:
        """Messages that finished a second, by source, in the last minute or since the start. Ask regularly."""
        at = self._clock.elapsed()
        while len(self._before) > 1 and self._before[1][0] <= at - _WITHIN:
            self._before.popleft()
        began, then = self._before[0]
        self._before.append((at, self._finished.copy()))
        span = at - began
        return {source: (number - then[source]) / span for source, number in self._finished.items()} if span > 0 else {}

    def breakers(self) -> tuple[OpenBreaker, ...]:
        """Those that are not closed, by target."""
        return tuple(self._breakers[target] for target in sorted(self._breakers))

    def _see(self, event: Event) -> None:
        match event:
            case BatchSettled(source=source, done=done, buried=buried):
                self._finished[source] += done + buried
            case BreakerMoved(target=target, state=Position.CLOSED):
                self._breakers.pop(target, None)
            case BreakerMoved(target=target, state=position):
                self._breakers[target] = OpenBreaker(target, Position(position), self._clock.now())
