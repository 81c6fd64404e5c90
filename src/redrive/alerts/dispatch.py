"""Sends the notices that incidents owe: claimed by one process, sent to each notifier, and only then no longer owed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta

from redrive.alerts.courier import Courier
from redrive.alerts.incidents import Incident, Incidents, claimed, notice_of, told
from redrive.alerts.model import Kind, Notice
from redrive.clock import Clock
from redrive.errors import UnknownIncident
from redrive.stores.base import Documents
from redrive.telemetry.events import AlertsDropped, Events

_MOST_NOTICES = 100
_CLAIM = timedelta(minutes=1)
_GIVE_UP = timedelta(hours=1)


class Turns:
    """Lets one process of all do something, once in each interval: the first to ask has the turn."""

    def __init__(self, documents: Documents, clock: Clock, owner: str) -> None:
        self._documents = documents
        self._clock = clock
        self._owner = owner

    async def take(self, name: str, every: timedelta) -> bool:
        now = self._clock.now().timestamp()
        document = await self._documents.get("alerts", name)
        if document is not None and 0 <= now - document.body["at"] < every.total_seconds():
            return False
        body = {"at": now, "by": self._owner}
        return await self._documents.put("alerts", name, body, expect=document.version if document else 0)


class Dispatcher:
    """Sends every notifier the notices that incidents owe it."""

    def __init__(self, couriers: Sequence[Courier], clock: Clock, events: Events, owner: str) -> None:
        self._couriers = couriers
        self._clock = clock
        self._events = events
        self._owner = owner
        self._kept_alive: dict[str, float] = {}

    @property
    def rests(self) -> float | None:
        """Seconds until a notifier that rests can be asked again; None if none rests."""
        return min((courier.rests for courier in self._couriers if courier.rests), default=None)

    async def dispatch(self, incidents: Incidents, found: Iterable[Incident]) -> bool:
        """Make one attempt for each notifier, all at once; returns whether more could be sent now."""
        ready = [incident for incident in found if self._lacking(incident) or self._is_old(incident)]
        mine = [
            incident
            for incident in [await self._claim(incidents, incident) for incident in ready[:_MOST_NOTICES]]
            if incident is not None
        ]
        taken = await asyncio.gather(*(self._carry(courier, mine) for courier in self._couriers))
        for incident in mine:
            await self._note(incidents, incident, taken)
        return len(ready) > _MOST_NOTICES

    async def keep_alive(self, found: Iterable[Incident], turns: Turns | None) -> None:
        """Repeat open alerts to notifiers that take silence for an end; without turns, each process does."""
        going_on = [notice_of(incident, Kind.REPEATED) for incident in found if incident.is_open]
        for courier in self._couriers:
            every = courier.notifier.keepalive
            if every is None or not going_on or courier.rests or not self._is_time(courier, every):
                continue
            if turns is None or await turns.take(f"keepalive-{courier.name}", every * 0.9):
                await courier.carry(going_on)

    def _is_time(self, courier: Courier, every: timedelta) -> bool:
        now = self._clock.elapsed()
        last = self._kept_alive.setdefault(courier.name, now)
        if now - last < every.total_seconds():
            return False
        self._kept_alive[courier.name] = now
        return True

    def _lacking(self, incident: Incident) -> list[Courier]:
        """The couriers whose notifier lacks its notice and can be asked."""
        return [courier for courier in self._couriers if not courier.rests and _lacks(incident, courier.name)]

    def _is_old(self, incident: Incident) -> bool:
        return incident.owed is not None and self._clock.now() - incident.owed.since >= _GIVE_UP

    async def _claim(self, incidents: Incidents, incident: Incident) -> Incident | None:
        now = self._clock.now()
        try:
            mine = await incidents.change(incident.id, lambda old: claimed(old, self._owner, now, now + _CLAIM))
        except UnknownIncident:
            return None
        return mine if mine.owed is not None and mine.owed.owner == self._owner else None

    async def _carry(self, courier: Courier, mine: Sequence[Incident]) -> set[str]:
        notices: list[Notice] = [notice_of(incident) for incident in mine if _lacks(incident, courier.name)]
        return set() if courier.rests else await courier.carry(notices)

    async def _note(self, incidents: Incidents, incident: Incident, taken: Sequence[set[str]]) -> None:
        """Write down who took its notice, and who still lacks it."""
        owed, notice = incident.owed, notice_of(incident)
        assert owed is not None
        done = {courier.name for courier, ids in zip(self._couriers, taken, strict=True) if notice.id in ids}
        missing = set(owed.to if owed.to is not None else (courier.name for courier in self._couriers)) - done
        if missing and self._is_old(incident):
            missing = self._give_up(missing)
        now = self._clock.now()
        await incidents.change(incident.id, lambda old: told(old, owed.number, incident.count, missing, now))

    def _give_up(self, missing: Iterable[str]) -> set[str]:
        for name in missing:
            self._events.emit(AlertsDropped(notifier=name, count=1, why=f"it could not be told within {_GIVE_UP}"))
        return set()


def _lacks(incident: Incident, name: str) -> bool:
    return incident.owed is not None and (incident.owed.to is None or name in incident.owed.to)
