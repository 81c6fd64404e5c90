"""The service as somebody sees it: what is out of an actor's scope does not exist.

The store that such a service asks is narrowed, so a new method need not think of it: every query of letters carries
the scope, and a document of a kind that `_KINDS` does not name is not there. What transports tell (how full a queue is,
what is paused) belongs to a source as a whole: it is there for those who reach all of that source, of every tenant.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.alerts.incidents import KIND as INCIDENTS
from redrive.app import Redrive
from redrive.errors import NotInScope
from redrive.flow.held import KIND as HELD
from redrive.flow.pauses import KIND as PAUSES
from redrive.flow.replay_document import KIND as REPLAYS
from redrive.flow.replay_document import ReplayState
from redrive.flow.storms import KIND as STORMS
from redrive.forensics.marks import KIND as MARKS
from redrive.forensics.notes import KIND as NOTES
from redrive.forensics.query import Query
from redrive.forensics.scope import Scope, exact, reaches
from redrive.forensics.series import DAY, By, Point, SeriesQuery
from redrive.model import Letter, LetterId, Owner, State, letter_id
from redrive.stores.base import Cursor, Document, Group, GroupOrder, Hit, Letters, Page, Series, Store, Tally
from redrive.stores.scoped import is_text, tenants_by_looking
from redrive.upkeep.heartbeat import KIND as BEATS

_PAGE = 500
_MOST = 1000
_SOME = 50  # groups whose tenants are asked for at once
_VERDICTS = 10_000
Verdicts: TypeAlias = dict[tuple[Scope, str], bool]
"""Whether all letters of a replay are in a scope. A selection stays as it was frozen, so that is looked up once: a
replay may have more letters than anybody wants to be asked for with every page."""
NO_SERIES = "counts over time are of whole sources, and you reach a part of them only: there are none to show"


class SeenLetters:
    """The letters of a scope, of which no question leaves."""

    def __init__(self, letters: Letters, scope: Scope, transports: Collection[str]) -> None:
        self._letters = letters
        self._scope = scope
        self._transports = transports

    def narrowed(self, query: Query) -> Query:
        """What that query selects of the scope. A system is known by its transport."""
        scope, transports = self._scope, query.transports
        if scope.systems:
            here = self._transports if transports is None else transports
            transports = tuple(name for name in here if reaches(scope.systems, name))
            scope = replace(scope, systems=())
        return replace(query, transports=transports, scope=scope)

    def has(self, letter: Letter) -> bool:
        """Whether the letter is in it."""
        message = letter.message
        return self._scope.has(source=message.source, tenant=message.tenant, system=letter.transport)

    async def record(self, letters: Sequence[Letter]) -> None:
        """Record them, if neither they nor the letters that they would rejoin are out of scope: an id is what somebody
        wrote into a line of an import."""
        ids = tuple({letter.id for letter in letters})
        known = (await self._letters.search(Query(ids=ids), limit=max(1, len(ids)))).letters
        if not all(map(self.has, (*letters, *known))):
            raise NotInScope("a letter of another source or tenant cannot be recorded")
        await self._letters.record(letters)

    async def get(self, id: LetterId) -> Letter | None:
        letter = await self._letters.get(id)
        return letter if letter is not None and self.has(letter) else None

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        return await self._letters.search(self.narrowed(query), after=after, limit=limit, oldest_first=oldest_first)

    async def count(self, query: Query) -> int:
        return await self._letters.count(self.narrowed(query))

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        return await self._letters.groups(self.narrowed(query), limit=limit, skip=skip, order=order)

    async def whole(self, groups: Sequence[str]) -> frozenset[str]:
        """Those of these groups that have no letter out of scope: a few questions, however many groups there are."""
        every = await self._letters.groups(Query(groups=tuple(groups)), limit=len(groups)) if groups else []
        wanted = self._scope.sources
        there = {
            group.id: group.count
            for group in every
            if not wanted or all(reaches(wanted, source) for source in group.sources)
        }
        if not there or not (self._scope.tenants or self._scope.systems):
            return frozenset(there)
        query = replace(await self._within(tuple(there)), groups=tuple(there))
        if query.scope is not None and not query.scope.tenants:
            query = replace(query, scope=None)  # all sources of these are in it
        theirs = await self._letters.groups(query, limit=len(there))
        return frozenset(group.id for group in theirs if group.count == there[group.id])

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        """Those of the newest letters that are in scope: what a store counts of a group is of all of it."""
        return await tenants_by_looking(self._letters, groups, await self._within(groups), most=most)

    async def _within(self, groups: Sequence[str]) -> Query:
        """What is in scope, for questions about these groups. Patterns of tenants are compared here, once, where the
        store tells all tenants of the groups: it may have to look at every letter for each question that has some."""
        query = self.narrowed(Query())
        patterns = self._scope.tenants
        if not patterns or query.scope is None:
            return query
        names = exact(patterns)
        if names is None:
            hits: dict[str, Hit] = {}
            for start in range(0, len(groups), _SOME):
                hits |= await self._letters.tenants(groups[start : start + _SOME], most=_MOST)
            if not all(hit.is_all for hit in hits.values()):
                return query
            names = tuple(sorted({name for hit in hits.values() for name in hit.tenants}))
        theirs = tuple([name for name in names if reaches(patterns, name) and is_text(name)])
        return replace(query, tenants=theirs, scope=replace(query.scope, tenants=()))

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        return await self._letters.tallies(self.narrowed(query or Query()))

    async def claim(
        self,
        query: Query,
        *,
        to: State,
        owner: Owner,
        now: datetime,
        until: datetime,
        limit: int,
        replay: str | None = None,
    ) -> Sequence[Letter]:
        wanted = self.narrowed(query)
        return await self._letters.claim(wanted, to=to, owner=owner, now=now, until=until, limit=limit, replay=replay)

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        wanted = list(ids)
        theirs = [letter.id for letter in (await self.search(Query(ids=tuple(wanted)), limit=len(wanted) or 1)).letters]
        return await self._letters.move(theirs, expect=expect, to=to, now=now, owner=owner) if theirs else []

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        return await self._letters.prune(self.narrowed(query), limit=limit)


class SeenDocuments:
    """The documents that somebody may know of, by their kind; of any other kind there are none."""

    def __init__(self, store: Store, letters: SeenLetters, actor: Actor, verdicts: Verdicts) -> None:
        self._documents = store.documents
        self._store = store
        self._letters = letters
        self._actor = actor
        self._verdicts = verdicts

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        return await self._documents.put(kind, id, body, expect=expect)

    async def delete(self, kind: str, id: str, *, expect: int | None = None) -> bool:
        return await self._documents.delete(kind, id, expect=expect)

    async def get(self, kind: str, id: str) -> Document | None:
        document = await self._documents.get(kind, id)
        return document if document is not None and await self._is_seen(kind, document) else None

    async def list(self, kind: str, *, limit: int = 1000) -> Sequence[Document]:
        found = await self._documents.list(kind, limit=_MOST)
        if kind == MARKS:  # of every group of everybody
            whole = await self._letters.whole([document.body["group"] for document in found])
            return [document for document in found if document.body["group"] in whole][:limit]
        return [document for document in found if await self._is_seen(kind, document)][:limit]

    async def is_whole(self, group: str) -> bool:
        """Whether every letter of that group is in scope."""
        query = Query(groups=(group,))
        theirs = await self._letters.count(query)
        return theirs > 0 and theirs == await self._store.letters.count(query)

    async def _is_seen(self, kind: str, document: Document) -> bool:
        test = _KINDS.get(kind)
        return test is not None and await test(self, document)

    async def _beat(self, document: Document) -> bool:
        return True  # `workers` shows of it what is in scope

    async def _whole_source(self, document: Document) -> bool:
        return reaches_whole(self._actor.scope, document.body["source"])

    async def _held(self, document: Document) -> bool:
        body = document.body
        return await self._letters.get(letter_id(body["source"], body["members"][0])) is not None

    async def _mark(self, document: Document) -> bool:
        return await self.is_whole(document.body["group"])

    async def _incident(self, document: Document) -> bool:
        alert = document.body["alert"]
        if alert.get("group"):
            return await self.is_whole(alert["group"])
        return bool(alert.get("source")) and reaches_whole(self._actor.scope, alert["source"])

    async def _replay(self, document: Document) -> bool:
        key = self._actor.scope, document.id
        if key in self._verdicts:
            return self._verdicts[key]
        verdict = await self._is_theirs(document.id)
        if verdict is None:
            return bool(document.body["actor"] == str(self._actor))
        if document.body["state"] != ReplayState.FREEZING:
            if len(self._verdicts) >= _VERDICTS:
                self._verdicts.pop(next(iter(self._verdicts)))
            self._verdicts[key] = verdict
        return verdict

    async def _is_theirs(self, replay: str) -> bool | None:
        """Whether each of its letters is in scope. None, and so its maker's: it has none yet, or some are deleted, of
        which nobody can tell any more where they were from."""
        after: Cursor | None = None
        found = chosen = 0
        while True:
            entries, after = await self._store.ledger.entries(replay, after=after, limit=_PAGE)
            query = Query(ids=tuple(entry.letter for entry in entries))
            theirs = await self._letters.count(query) if entries else 0
            if entries and theirs < await self._store.letters.count(query):
                return False
            found, chosen = found + theirs, chosen + len(entries)
            if after is None or not entries:
                return True if found == chosen > 0 else None


_KINDS: dict[str, Callable[[SeenDocuments, Document], Awaitable[bool]]] = {
    BEATS: SeenDocuments._beat,
    HELD: SeenDocuments._held,
    INCIDENTS: SeenDocuments._incident,
    MARKS: SeenDocuments._mark,
    NOTES: SeenDocuments._mark,
    PAUSES: SeenDocuments._whole_source,
    REPLAYS: SeenDocuments._replay,
    STORMS: SeenDocuments._whole_source,
}


class SeenLedger:
    """The ledger, which freezes only what is in scope."""

    def __init__(self, store: Store, letters: SeenLetters) -> None:
        self._ledger = store.ledger
        self._letters = letters

    async def freeze(self, replay: str, query: Query, *, now: datetime) -> int:
        return await self._ledger.freeze(replay, self._letters.narrowed(query), now=now)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)  # all else is of a replay that was found, so it is theirs


class SeenSeries:
    """Counts over time of the sources that somebody reaches whole: of a tenant, or a system, there are none."""

    def __init__(self, series: Series, scope: Scope) -> None:
        self._series = series
        self._scope = scope
        self.note = NO_SERIES if scope.tenants or scope.systems else ""

    async def read(self, query: SeriesQuery) -> Sequence[Point]:
        if self.note:
            return []
        names = exact(self._scope.sources) if query.sources is None else query.sources
        if names is None:
            known = await self._series.read(SeriesQuery(step=DAY, since=0, until=query.until, by=By.SOURCE))
            names = tuple({point.name for point in known})
        theirs = tuple(name for name in names if reaches(self._scope.sources, name))
        return await self._series.read(replace(query, sources=theirs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._series, name)  # who adds or prunes is no actor


class SeenStore:
    """A store of which somebody sees a part."""

    def __init__(self, store: Store, actor: Actor, transports: Collection[str], verdicts: Verdicts) -> None:
        self.features = store.features
        self.versions = store.versions  # of letters that were found
        self.letters = SeenLetters(store.letters, actor.scope, transports)
        self.documents = SeenDocuments(store, self.letters, actor, verdicts)
        self.ledger = SeenLedger(store, self.letters)
        self.series = SeenSeries(store.series, actor.scope)
        self._store = store

    async def check(self) -> None:
        await self._store.check()

    async def aclose(self) -> None:
        """Whoever opened it closes it."""


def seen_app(app: Redrive, actor: Actor, verdicts: Verdicts) -> tuple[Redrive, SeenStore]:
    """The app with a store that is narrowed to what the actor reaches."""
    store, view = SeenStore(app.store, actor, app.transport_names, verdicts), copy.copy(app)
    view._store = cast(Store, store)  # its ledger passes on what it does not narrow
    return view, store


def reaches_whole(scope: Scope, source: str) -> bool:
    """Whether all of a source is in scope, of whatever tenant."""
    narrowed = scope.tenants or scope.systems
    return not narrowed and (not scope.sources or reaches(scope.sources, source))
