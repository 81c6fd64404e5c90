"""The background task that makes incidents of what was seen, and sends the notices that they owe.

Nothing here is awaited by who handles messages. Reports wait in a bounded queue; everything after that is in the
store, so that a process that dies in the middle leaves nothing untold: another one goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from redrive.alerts.courier import Courier
from redrive.alerts.dispatch import Dispatcher, Turns
from redrive.alerts.groups import Groups
from redrive.alerts.incidents import Incident, Incidents, Timing, lapsed
from redrive.alerts.masking import UrlMask
from redrive.alerts.model import Alert, Notifier, Severity
from redrive.alerts.notifiers import open_notifiers
from redrive.alerts.regressions import Regressions
from redrive.alerts.replays import PausedReplays
from redrive.alerts.rules import BY_NAME, EXHAUSTED, Pen
from redrive.alerts.watch import Watch
from redrive.clock import Clock
from redrive.config.settings import Settings
from redrive.errors import Unavailable
from redrive.forensics.redact import Redactor
from redrive.stores.base import Store
from redrive.stores.memory import MemoryDocuments
from redrive.telemetry.events import AlertsDropped, BackendDown, BackendUp, Events

if TYPE_CHECKING:
    from redrive.app import Redrive

log = logging.getLogger("redrive")
_GATHER = 1.0  # seconds in which what comes together is told together
_MOST_REPORTS = 1000
_MOST_FACTS = 200  # looked at in one round
_KEPT = timedelta(days=30)
IsOver: TypeAlias = Callable[[Alert], Awaitable[bool]]
"""Whether what an alert told of is over."""
_FORGET_EVERY = timedelta(hours=1)


class Alerts:
    """Watches the events of an app and tells its notifiers. Any number of processes may run it on one store.

    async with Alerts.of(app) as alerts:
        alerts.report(Alert(...))
    """

    def __init__(
        self,
        store: Store,
        events: Events,
        clock: Clock,
        settings: Settings,
        notifiers: Sequence[Notifier],
        mask: UrlMask,
    ) -> None:
        self._chosen = settings.alerts
        owner = f"alerts:{settings.worker_name}:{clock.new_id()}"
        self.notifiers = notifiers
        self.incidents = Incidents(store.documents, clock, events)
        self._apart = Incidents(MemoryDocuments(), clock, events)  # while the store is away
        self._store = store
        self._events = events
        self._clock = clock
        self._mask = mask
        self._least = Severity(self._chosen.severity)
        self._timing = Timing(self._chosen.repeat, self._chosen.resolve_after)
        self._woken, self._stopping = asyncio.Event(), asyncio.Event()
        pen = self._pen = Pen(Redactor.of(settings.redact), self._chosen.console)
        self._watch = Watch(self._chosen, clock, pen, self._woken.set)
        self._groups = Groups(store.letters, self._chosen, self._watch, pen)
        self._regressions = Regressions(store.documents, self._chosen, pen)
        self._replays = PausedReplays(store.documents, self._chosen, pen)
        self._dispatcher = Dispatcher(
            [Courier(notifier, events, clock, mask) for notifier in notifiers], clock, events, owner
        )
        self._turns = Turns(store.documents, clock, owner)
        self._ends: dict[str, IsOver] = {}
        self._inbox: deque[Alert | str] = deque()  # a report, or the key of what is cleared
        self._last: list[Incident] = []  # as the store had them when it answered
        self._away: str | None = None  # the backend that did not answer
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, app: Redrive, *, notifiers: Sequence[Notifier] = ()) -> Alerts:
        """Alerts of that app, with the notifiers of its settings, those that were added to it, and those given."""
        urls = app.settings.alerts.urls
        every = [*open_notifiers(urls), *app.notifiers, *notifiers]
        return cls(app.store, app.events, app.clock, app.settings, every, UrlMask(urls))

    # -- for those who have something to say ---------------------------------------------------------------------------

    def report(self, alert: Alert) -> None:
        """Report that something is so, or happened. Never waits; what is below the least severity is ignored."""
        if alert.severity.reaches(self._least):
            self._put(self._pen.masked(alert))

    def clear(self, key: str) -> None:
        """Report that the alert of that key is over."""
        self._put(key)

    def _put(self, news: Alert | str) -> None:
        if len(self._inbox) >= _MOST_REPORTS:
            self._events.emit(AlertsDropped(notifier="", count=1, why=f"{_MOST_REPORTS:,} reports wait already"))
            return
        self._inbox.append(news)
        self._woken.set()

    def ends_when(self, name: str, is_over: IsOver) -> None:
        """Resolve an alert of that name, once it has been open for a round, when `is_over` says so."""
        self._ends[name] = is_over

    def listen(self) -> Callable[[], None]:
        """Watch the events of the app from now on, until what is returned is called: for who asks for each `round`."""
        return self._events.subscribe(self._watch)

    # -- its life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Alerts:
        self._mask.__enter__()
        self._unsubscribe = self.listen()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is known, within the grace. What is not sent by then is in the store for the next process."""
        self._unsubscribe()
        self._stopping.set()
        self._woken.set()
        try:
            async with asyncio.timeout(self._chosen.grace.total_seconds()):
                await self._last_round()
        except TimeoutError:
            log.warning("some alerts were not told in time: another process, or the next start, tells them")
        finally:
            await self._let_go()

    async def _last_round(self) -> None:
        if self._task is not None:
            await asyncio.shield(self._task)
        await self._guarded()

    async def _let_go(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        lost = [incident for incident in await self._apart.list() if incident.owed is not None]
        if lost:
            why = "the process ended before the store was back"
            self._events.emit(AlertsDropped(notifier="", count=len(lost), why=why))
        for notifier in self.notifiers:
            await notifier.aclose()
        self._mask.__exit__()

    async def _run(self) -> None:
        while not self._stopping.is_set():
            await self._guarded()
            await self._pause()

    async def _pause(self) -> None:
        """Wait until something happens, a notifier can be asked again, or the rules are due."""
        longest = self._chosen.interval.total_seconds()
        if await self._clock.wait(self._woken, min(longest, self._dispatcher.rests or longest)):
            await self._clock.wait(self._stopping, min(_GATHER, longest))
        self._woken.clear()

    async def _guarded(self) -> None:
        try:
            await self.round()
        except Exception:  # an alert that cannot be made must not end the others
            log.exception("a round of alerts failed, and is tried again")

    # -- a round -------------------------------------------------------------------------------------------------------

    async def round(self) -> None:
        """Look at everything once, and send the notices that are due."""
        self._take(self._watch.conditions(self._clock.now()))
        try:
            await self._with_store()
        except Unavailable as error:
            self._away = error.name
            self._events.emit(BackendDown(backend=error.name, why=str(error), pause=self._chosen.interval))
            await self._without_store()
        else:
            self._is_back()

    def _is_back(self) -> None:
        if self._away is not None:
            self._events.emit(BackendUp(backend=self._away))
            self._away = None

    def _take(self, alerts: Iterable[Alert]) -> None:
        self._inbox.extend(alert for alert in alerts if alert.severity.reaches(self._least))

    async def _with_store(self) -> None:
        for incident in await self._apart.list():
            await self.incidents.merge(incident)
            await self._apart.remove(incident.id)
        self._take(await self._regressions.look(self._clock.now()))
        self._take(await self._groups.look(self._clock.now()))
        await self._write_down(self.incidents)
        found = await self.incidents.list()
        if await self._turns.take("look", self._chosen.interval * 0.9):
            self._take(await self._replays.look(self._clock.now()))  # written down in the next round
            found = await self._looked_at(found)
        if self._ends and await self._turns.take(f"ends-{'-'.join(sorted(self._ends))}", self._chosen.interval * 0.9):
            found = await self._ended(found)
        self._last = found
        if await self._dispatcher.dispatch(self.incidents, found):
            self._woken.set()
        await self._dispatcher.keep_alive(found, self._turns)

    async def _without_store(self) -> None:
        """Go on without the store, by the same rules: other processes may send the same notices."""
        self._take(self._groups.unasked(self._clock.now()))
        await self._write_down(self._apart)
        found = [await self._lapsed(self._apart, incident) for incident in await self._apart.list()]
        await self._dispatcher.dispatch(self._apart, found)
        await self._dispatcher.keep_alive([*found, *self._last], None)

    async def _write_down(self, incidents: Incidents) -> None:
        """Write what waits now to the store. What comes meanwhile has the next round, or endless reports would keep us.
        What could not be written stays in the queue, as does the end of what only the store knows."""
        self._inbox = deque(_folded(self._inbox))
        unknown = []
        for _ in range(len(self._inbox)):
            news = self._inbox[0]
            if isinstance(news, Alert):
                if news.group not in self._regressions.muted:
                    await incidents.report(news, self._timing)
            elif not await incidents.clear(news) and incidents is self._apart:
                unknown.append(news)
            self._inbox.popleft()
        self._inbox.extendleft(reversed(unknown))

    async def _looked_at(self, found: Sequence[Incident]) -> list[Incident]:
        """Resolve the incidents that are over, and forget those that were over long ago."""
        if await self._turns.take("forget", _FORGET_EVERY):
            await self.incidents.forget(self._clock.now() - _KEPT)
        facts = [incident for incident in found if incident.is_open and not incident.alert.lasting]
        for incident in facts[:_MOST_FACTS]:
            rule = BY_NAME.get(incident.alert.name)
            if rule is not None and rule.gone is not None and incident.alert.group is not None:
                await self._if_gone(incident, await self._store.letters.count(rule.gone(incident.alert.group)))
        return [await self._lapsed(self.incidents, incident) for incident in await self.incidents.list()]

    async def _ended(self, found: Sequence[Incident]) -> list[Incident]:
        """Resolve the incidents of which `ends_when` says that they are over."""
        for incident in found:
            is_over = self._ends.get(incident.alert.name) if incident.is_open else None
            if is_over is not None and self._is_settled(incident) and await is_over(incident.alert):
                await self.incidents.clear(incident.alert.key)
        return await self.incidents.list()

    def _is_settled(self, incident: Incident) -> bool:
        """Whether it was last reported a while ago: a store may show late what was written."""
        return self._clock.now() - incident.seen_at >= self._chosen.interval

    async def _if_gone(self, incident: Incident, left: int) -> None:
        """Clear a fact whose letters were resolved or archived."""
        needed = self._chosen.exhausted or 1 if incident.alert.name == EXHAUSTED.name else 1
        if left < needed and self._is_settled(incident):
            await self.incidents.clear(incident.alert.key)

    async def _lapsed(self, incidents: Incidents, incident: Incident) -> Incident:
        now = self._clock.now()
        if lapsed(incident, now, self._timing) is incident:
            return incident
        return await incidents.change(incident.id, lambda old: lapsed(old, now, self._timing))


def _folded(news: Iterable[Alert | str]) -> list[Alert | str]:
    """Join the reports of one key into one with all their counts, unless something between them ends it."""
    kept: list[Alert | str] = []
    places: dict[str, int] = {}
    for report in news:
        key = report if isinstance(report, str) else report.key
        known = kept[places[key]] if key in places else key
        if isinstance(report, Alert) and isinstance(known, Alert):
            kept[places[key]] = replace(report, starts_at=known.starts_at, count=known.count + report.count)
        else:
            places[key] = len(kept)
            kept.append(report)
    return kept


@asynccontextmanager
async def alerting(app: Redrive) -> AsyncIterator[Alerts | None]:
    """Run the alerts of that app beside a block of code, where it has somebody to notify; otherwise do nothing."""
    if not app.settings.alerts.urls and not app.notifiers:
        yield None
        return
    async with Alerts.of(app) as alerts:
        yield alerts
