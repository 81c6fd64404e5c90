"""Upkeep beside the workers: automatic retries, rescue and pruning, each in its own rhythm."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.clock import Clock
from redrive.config.settings import Settings
from redrive.errors import Unavailable
from redrive.flow.breaker import BreakerRule
from redrive.flow.fits import Fits, fits
from redrive.flow.replay import Replays
from redrive.flow.tasks import is_to_end
from redrive.forensics.series import Kept
from redrive.stores.base import IndexesTexts, Store
from redrive.telemetry.events import BackendDown, Events, UpkeepRan
from redrive.transports.base import Transport
from redrive.upkeep.due import Due
from redrive.upkeep.fixes import Fixes
from redrive.upkeep.holding import Holding
from redrive.upkeep.prune import Retention, prune
from redrive.upkeep.replaying import Replaying
from redrive.upkeep.rescue import rescue_claims, rescue_stopped
from redrive.upkeep.series import EVERY, count_past, prune_series, roll_up

if TYPE_CHECKING:
    from redrive.app import Redrive

log = logging.getLogger("redrive")
_RESCUE_EVERY = timedelta(seconds=5)
_INDEX_EVERY = timedelta(seconds=1)
_PAST_EVERY = timedelta(hours=1)  # once is enough, unless it was cut off
_INDEXED = 500  # letters between two pauses
_PAUSE = 0.2  # seconds: others write, too


class Upkeep:
    """Runs until it is cancelled. Any number of processes may run it on one store."""

    def __init__(
        self,
        store: Store,
        transports: Mapping[str, Transport],
        events: Events,
        clock: Clock,
        settings: Settings,
        breaker: BreakerRule | None = None,
        *,
        fits: Fits = lambda message: None,
    ) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._settings = settings
        self._owner = f"upkeep:{settings.worker_name}:{clock.new_id()}"
        self.replays = Replays(store, transports, events, clock, fits=fits)
        self.fixes = Fixes(store, self.replays, events, clock)
        self._replaying = Replaying(self.replays, events, clock, owner=self._owner)
        self.due = Due(
            store,
            transports,
            events,
            clock,
            owner=self._owner,
            lease=settings.upkeep.lease,
            parallel=settings.upkeep.parallel,
            breaker=breaker,
            fits=fits,
        )
        self.holding = Holding(
            store,
            transports,
            events,
            clock,
            owner=self._owner,
            lease=settings.upkeep.lease,
            patience=2 * settings.lease,
            fits=fits,
        )

    @classmethod
    def of(cls, app: Redrive) -> Upkeep:
        transports = dict(app.transports)  # opened now: a URL that is wrong is said at the start, not hours later
        return cls(app.store, transports, app.events, app.clock, app.settings, fits=fits(app.handlers))

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            await self._replaying.aclose()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every("retries", self._settings.upkeep.interval, self.due.cycle))
            group.create_task(self._every("holds", self._settings.upkeep.interval, self.holding.cycle))
            group.create_task(self._every("rescue", _RESCUE_EVERY, self.rescue))
            group.create_task(self._every("replays", _RESCUE_EVERY, self._replaying.begin))
            group.create_task(self._every("fixes", _RESCUE_EVERY, self.fixes.cycle))
            group.create_task(self._every("prune", self._settings.upkeep.prune_every, self.prune))
            group.create_task(self._every("texts", _INDEX_EVERY, self.index_texts))
            group.create_task(self._every("series", EVERY, self.roll_up))
            group.create_task(self._every("past", _PAST_EVERY, self.count_past))

    async def rescue(self) -> None:
        """Give back the claims of dead processors, and of replays that were stopped by one."""
        await rescue_claims(self._store, self._events, self._clock)
        await rescue_stopped(self._store, self.replays, self._clock, owner=self._owner)

    async def index_texts(self) -> None:
        """Let texts be found: some letters at a time, so that an old store is indexed beside its work."""
        if isinstance(self._store, IndexesTexts):
            while await self._store.index_texts(_INDEXED) and not is_to_end():
                await self._clock.sleep(_PAUSE)

    async def prune(self) -> None:
        kept = self._settings.retention
        await prune(self._store, self._events, self._clock, Retention(kept.ttl, kept.max_letters, kept.export))
        await prune_series(self._store, self._clock, self._kept)

    async def roll_up(self) -> None:
        """Sum up what was counted since, so that reading it stays fast."""
        await roll_up(self._store)

    async def count_past(self) -> None:
        """Count letters from before there were counts, once."""
        await count_past(self._store, self._clock, self._kept)

    @property
    def _kept(self) -> Kept:
        kept = self._settings.series
        return Kept(minutes=kept.minutes, hours=kept.hours, days=kept.days)

    async def _every(self, task: str, span: timedelta, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work again and again. A backend that is away is reported, and tried again the next time."""
        while True:
            try:
                await work()
                self._events.emit(UpkeepRan(task=task, at=self._clock.now(), every=span))
            except Unavailable as error:
                self._events.emit(BackendDown(backend=error.name, why=str(error), pause=span))
            except Exception:  # one that fails must not end the others: automatic retries go on without an archive
                log.exception("%s failed, and is tried again in %s", work.__qualname__, span)
            if is_to_end():
                return
            await self._clock.sleep(min(span.total_seconds(), self.holding.soon if task == "holds" else math.inf))
