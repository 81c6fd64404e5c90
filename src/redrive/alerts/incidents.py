"""Incidents: the life of an alert in the store, so that it survives restarts and is told once by all processes.

What happens to one is a pure function of the incident; `Incidents` carries it out by compare-and-set. A notice that is
owed stands in the incident until every notifier took it: whoever claims it tells it, and if that process dies,
another one does when the claim ends.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.alerts.model import Alert, Kind, Notice
from redrive.clock import Clock
from redrive.errors import StoreUnavailable, UnknownIncident, UsageError
from redrive.stores.base import Document, Documents
from redrive.telemetry.events import Events, IncidentMoved

KIND = "incident"
BY_RULE = "rule"
_MOST = 5000
_MOST_NOTES = 100
_LONGEST_NOTE = 2000
_MOST_TRIES = 50


class IncidentState(StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"  # somebody works on it: it is not told again
    RESOLVED = "resolved"


class Timing(Struct, frozen=True):
    """When an incident is told again, and when a condition that nobody reports any more is over."""

    repeat: timedelta
    lapse: timedelta


class Note(Struct, frozen=True):
    """What somebody wrote down."""

    at: datetime
    actor: str
    text: str


class Owed(Struct, frozen=True, kw_only=True):
    """A notice that not every notifier has taken yet."""

    number: int
    kind: Kind
    since: datetime
    to: tuple[str, ...] | None = None  # the notifiers that lack it; None: all that whoever tells it has
    owner: str | None = None
    until: datetime | None = None


class Incident(Struct, frozen=True, kw_only=True):
    """One alert from when it was opened until it is resolved. Opened again, it is another episode of the same one."""

    id: str
    state: IncidentState
    alert: Alert
    opened_at: datetime
    seen_at: datetime
    count: int
    episode: int = 1
    resolved_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_by: str | None = None  # a person, or `rule`
    notes: tuple[Note, ...] = ()
    told_at: datetime | None = None
    told_count: int = 0
    owed: Owed | None = None
    notices: int = 0  # so far, for their ids

    @property
    def is_open(self) -> bool:
        return self.state is not IncidentState.RESOLVED


Change: TypeAlias = Callable[[Incident], Incident]


def incident_id(key: str) -> str:
    """The id of the incident of a key, the same in every process."""
    return b32encode(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=10).digest()).decode().lower()


# -- what happens to an incident: pure ---------------------------------------------------------------------------------


def opened(old: Incident | None, alert: Alert, now: datetime) -> Incident:
    """The incident as it is opened, for the first time or again."""
    made = Incident(
        id=incident_id(alert.key),
        state=IncidentState.OPEN,
        alert=alert,
        opened_at=now,
        seen_at=now,
        count=max(alert.count, 1),
        episode=old.episode + 1 if old else 1,
        notes=old.notes if old else (),
        notices=old.notices if old else 0,
    )
    return _owing(made, Kind.OPENED, now)


def reported(old: Incident | None, alert: Alert, now: datetime, timing: Timing) -> Incident:
    """The incident after its alert was reported again."""
    if old is None:
        return opened(None, alert, now)
    if not old.is_open:
        return replace(old, seen_at=now) if _goes_on(old, now, timing) else opened(old, alert, now)
    if not alert.count and now - old.seen_at < timing.lapse / 4:
        return old if not _is_due(old, now, timing) else _owing(old, Kind.REPEATED, now)  # nothing worth a write
    seen = replace(old, alert=_known_as(old.alert, alert), seen_at=now, count=old.count + alert.count)
    return _owing(seen, Kind.REPEATED, now) if _is_due(seen, now, timing) else seen


def _known_as(old: Alert, new: Alert) -> Alert:
    """The new report under what the alert is known by outside: to Alertmanager, other labels are another alert."""
    return replace(
        new,
        starts_at=old.starts_at,
        name=old.name,
        severity=old.severity,
        labels=old.labels,
        group=old.group,
        source=old.source,
    )


def _goes_on(old: Incident, now: datetime, timing: Timing) -> bool:
    """Whether a report only says that what somebody resolved is still so."""
    return old.alert.lasting and old.resolved_by != BY_RULE and now - old.seen_at <= timing.lapse


def _is_due(incident: Incident, now: datetime, timing: Timing) -> bool:
    """Whether a notice is to be repeated: of a condition while it lasts, of a fact if it happened again."""
    news = incident.alert.lasting or incident.count > incident.told_count
    waited = now - (incident.told_at or incident.opened_at) >= timing.repeat
    return news and waited and incident.owed is None and incident.state is IncidentState.OPEN


def lapsed(incident: Incident, now: datetime, timing: Timing) -> Incident:
    """The incident, resolved if it is a condition that nobody reports any more."""
    over = incident.is_open and incident.alert.lasting and now - incident.seen_at > timing.lapse
    return resolved(incident, BY_RULE, now) if over else incident


def acknowledged(incident: Incident, actor: str, now: datetime) -> Incident:
    if incident.state is not IncidentState.OPEN:
        return incident
    return _owing(replace(incident, state=IncidentState.ACKNOWLEDGED, acknowledged_by=actor), Kind.ACKNOWLEDGED, now)


def resolved(incident: Incident, actor: str, now: datetime) -> Incident:
    if not incident.is_open:
        return incident
    alert = replace(incident.alert, resolved_at=now)
    done = replace(incident, state=IncidentState.RESOLVED, alert=alert, resolved_at=now, resolved_by=actor)
    return _owing(done, Kind.RESOLVED, now)


def noted(incident: Incident, actor: str, text: str, now: datetime) -> Incident:
    return replace(incident, notes=(*incident.notes, Note(now, actor, text))[-_MOST_NOTES:])


def claimed(incident: Incident, owner: str, now: datetime, until: datetime) -> Incident:
    """The incident with its notice claimed by that owner, until then."""
    owed = incident.owed
    if owed is None or (owed.owner not in (None, owner) and owed.until is not None and owed.until > now):
        return incident
    return replace(incident, owed=replace(owed, owner=owner, until=until))


def told(incident: Incident, number: int, count: int, missing: Collection[str], now: datetime) -> Incident:
    """The incident after its notice of that number was sent to all but those missing."""
    owed = incident.owed
    if owed is None or owed.number != number:  # it has another to tell by now
        return incident
    if missing:
        return replace(incident, owed=replace(owed, to=tuple(sorted(missing)), owner=None, until=None))
    return replace(incident, owed=None, told_at=now, told_count=count)


def merged(known: Incident | None, apart: Incident, now: datetime) -> Incident:
    """The incident of the store joined with what this process kept while the store was away."""
    if known is None:
        return apart
    if not known.is_open:
        return (
            replace(apart, episode=known.episode + 1, notices=known.notices + apart.notices) if apart.is_open else known
        )
    both = replace(known, count=known.count + apart.count, seen_at=max(known.seen_at, apart.seen_at))
    if apart.told_at is not None and apart.owed is None:  # the same news: it was told from here
        both = replace(both, told_at=apart.told_at, told_count=both.count, owed=None)
    return both if apart.is_open else resolved(both, BY_RULE, now)


def _owing(incident: Incident, kind: Kind, now: datetime) -> Incident:
    number = incident.notices + 1
    return replace(incident, notices=number, owed=Owed(number=number, kind=kind, since=now))


def notice_of(incident: Incident, kind: Kind | None = None) -> Notice:
    """The notice that it owes, or one of another kind, where it is only to be kept alive."""
    number = incident.owed.number if incident.owed else incident.notices
    by = incident.resolved_by if incident.state is IncidentState.RESOLVED else incident.acknowledged_by
    return Notice(
        id=f"{incident.id}-{incident.episode}-{number}",
        kind=kind or (incident.owed.kind if incident.owed else Kind.REPEATED),
        alert=incident.alert,
        count=incident.count,
        since=max(incident.count - incident.told_count, 0),
        by=by or "",
    )


# -- carried out -------------------------------------------------------------------------------------------------------


class Incidents:
    """Incidents in a store. Every change is compare-and-set, so that any number of processes may make them."""

    def __init__(self, documents: Documents, clock: Clock, events: Events) -> None:
        self._documents = documents
        self._clock = clock
        self._events = events

    async def list(self, *, states: Collection[IncidentState] | None = None, limit: int = _MOST) -> list[Incident]:
        """The incidents, the open ones first, then by when they were opened, newest first."""
        found = [_read(document) for document in await self._documents.list(KIND, limit=_MOST)]
        chosen = [incident for incident in found if states is None or incident.state in states]
        return sorted(chosen, key=lambda incident: (incident.is_open, incident.opened_at), reverse=True)[:limit]

    async def get(self, id: str) -> Incident:
        """The incident of that id, of the only id that begins so, or of the alert with that key."""
        for name in (id, incident_id(id)):
            document = await self._documents.get(KIND, name)
            if document is not None:
                return _read(document)
        found = [incident for incident in await self.list() if id and incident.id.startswith(id)]
        if len(found) > 1:
            raise UsageError(f"{id!r} means more than one incident: {', '.join(incident.id for incident in found[:5])}")
        if not found:
            raise UnknownIncident(id)
        return found[0]

    async def report(self, alert: Alert, timing: Timing) -> Incident:
        """Report an alert; the first time it opens an incident."""
        now = self._clock.now()
        return await self._change(incident_id(alert.key), lambda old: reported(old, alert, now, timing), actor=BY_RULE)

    async def merge(self, apart: Incident) -> None:
        now = self._clock.now()
        await self._change(apart.id, lambda old: merged(old, apart, now), actor=BY_RULE)

    async def change(self, id: str, change: Change, *, actor: str = BY_RULE) -> Incident:
        """Change the incident by compare-and-set; where others changed it meanwhile, the change is made on that."""

        def on_known(old: Incident | None) -> Incident:
            if old is None:
                raise UnknownIncident(id)
            return change(old)

        return await self._change(id, on_known, actor=actor)

    async def clear(self, key: str) -> bool:
        """End the alert of that key; returns whether there was one."""
        now = self._clock.now()
        if await self._documents.get(KIND, incident_id(key)) is None:
            return False
        await self.change(incident_id(key), lambda old: resolved(old, BY_RULE, now))
        return True

    async def remove(self, id: str) -> None:
        await self._documents.delete(KIND, id)

    async def acknowledge(self, id: str, *, actor: str) -> Incident:
        now = self._clock.now()
        return await self.change((await self.get(id)).id, lambda old: acknowledged(old, actor, now), actor=actor)

    async def resolve(self, id: str, *, actor: str) -> Incident:
        now = self._clock.now()
        return await self.change((await self.get(id)).id, lambda old: resolved(old, actor, now), actor=actor)

    async def note(self, id: str, text: str, *, actor: str) -> Incident:
        now = self._clock.now()
        if not text.strip() or len(text) > _LONGEST_NOTE:
            raise UsageError(f"a note has 1 to {_LONGEST_NOTE:,} characters")
        return await self.change((await self.get(id)).id, lambda old: noted(old, actor, text, now), actor=actor)

    async def forget(self, before: datetime) -> int:
        """Delete incidents that were resolved before then; returns how many."""
        done = [incident for incident in await self.list() if not incident.is_open and incident.owed is None]
        gone = [incident for incident in done if incident.resolved_at is not None and incident.resolved_at < before]
        for incident in gone:
            await self.remove(incident.id)
        return len(gone)

    async def _change(self, id: str, change: Callable[[Incident | None], Incident], *, actor: str) -> Incident:
        for _ in range(_MOST_TRIES):
            document = await self._documents.get(KIND, id)
            old = None if document is None else _read(document)
            new = change(old)
            if new == old:
                return new
            body = msgspec.to_builtins(new)
            if await self._documents.put(KIND, id, body, expect=0 if document is None else document.version):
                self._announce(old, new, actor)
                return new
        raise StoreUnavailable("incidents", f"others keep changing incident {id}")

    def _announce(self, old: Incident | None, new: Incident, actor: str) -> None:
        if old is None or old.state is not new.state:
            self._events.emit(IncidentMoved(incident=new.id, name=new.alert.name, state=str(new.state), actor=actor))


def _read(document: Document) -> Incident:
    return msgspec.convert(document.body, Incident)
