"""One notifier, with patience: what it does not take is tried again later, and never holds up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from redrive.alerts.masking import UrlMask
from redrive.alerts.model import Notice, Notifier, Undelivered
from redrive.clock import Clock
from redrive.flow.backoff import exponential
from redrive.telemetry.events import AlertsDropped, AlertsSent, Events, NotifierDown

_PATIENCE = 30.0
_BACKOFF = exponential("1s", cap="5m", jitter=0.25)


class Courier:
    """Carries notices to one notifier. After a failure it rests, longer each time, or as long as it is asked to."""

    def __init__(self, notifier: Notifier, events: Events, clock: Clock, mask: UrlMask) -> None:
        self.notifier = notifier
        self.name = notifier.name
        self._events = events
        self._clock = clock
        self._mask = mask
        self._failed = 0
        self._rests_until = 0.0

    @property
    def rests(self) -> float:
        """How many seconds it still rests; 0 if it can be asked now."""
        return max(self._rests_until - self._clock.elapsed(), 0.0)

    async def carry(self, notices: Sequence[Notice]) -> set[str]:
        """Send these notices; returns the ids of those that are done: it took them, or will never take them."""
        if not notices:
            return set()
        try:
            await self._notify(notices)
        except Undelivered as error:
            if error.retryable:
                self._rest(error)
                return set()
            return await self._one_by_one(notices, error)
        self._failed = 0
        self._events.emit(AlertsSent(notifier=self.name, count=len(notices)))
        return {notice.id for notice in notices}

    async def _notify(self, notices: Sequence[Notice]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.notifier.notify(notices)
        except Undelivered:
            raise
        except TimeoutError:
            raise Undelivered(f"no answer within {_PATIENCE:g} s") from None
        except Exception as error:  # of somebody's own notifier, or a bug of a library
            raise Undelivered(f"{type(error).__name__}: {error}") from error

    async def _one_by_one(self, notices: Sequence[Notice], error: Undelivered) -> set[str]:
        """Send each by itself, so that a notice that is refused does not take the others with it."""
        if len(notices) > 1:
            taken = [await self.carry([notice]) for notice in notices]
            return set[str]().union(*taken)
        self._events.emit(AlertsDropped(notifier=self.name, count=1, why=self._mask.text(str(error))))
        return {notices[0].id}

    def _rest(self, error: Undelivered) -> None:
        self._failed += 1
        pause = error.after or _BACKOFF.delay(self._failed, self._clock.rng) or timedelta()
        self._rests_until = self._clock.elapsed() + pause.total_seconds()
        self._events.emit(NotifierDown(notifier=self.name, why=self._mask.text(str(error)), pause=pause))
