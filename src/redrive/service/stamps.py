"""What a store looks like at one moment, as stamps that are cheap to read, and what differs between two of them.

    letters     how many there are by source, state and category, and the one that died last
    acts        the newest lines of the trail: an edit changes no count, and many a transport keeps its pauses itself
    documents   of each kind that a page shows, the newest with their versions

Nothing is written for it, so it works with any number of processes on one store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from redrive.access.approvals import KIND as APPROVALS
from redrive.access.trail import Line
from redrive.access.trail_store import Trail
from redrive.alerts.incidents import KIND as INCIDENTS
from redrive.flow.held import KIND as HELD
from redrive.flow.pauses import KIND as PAUSES
from redrive.flow.replay_document import KIND as REPLAYS
from redrive.flow.replay_document import OPEN_KIND
from redrive.flow.storms import KIND as STORMS
from redrive.forensics.marks import KIND as MARKS
from redrive.forensics.notes import KIND as NOTES
from redrive.forensics.query import Query
from redrive.stores.base import Document, Letters, Store
from redrive.upkeep.heartbeat import KIND as BEATS

LETTERS, ON_LETTERS, ON_SOURCES = "letters", "acts on letters", "acts on sources"
_NEWEST = 100
_BLOCKS = 20
_CHANGING = ("at", "sources")  # of a beat, with every beat


class What(StrEnum):
    """What may have changed."""

    LETTERS = "letters"
    GROUPS = "groups"
    REPLAYS = "replays"
    INCIDENTS = "incidents"
    SOURCES = "sources"
    APPROVALS = "approvals"


WHAT: dict[str, tuple[What, ...]] = {
    LETTERS: (What.LETTERS, What.GROUPS),
    ON_LETTERS: (What.LETTERS, What.GROUPS),
    ON_SOURCES: (What.SOURCES,),
    REPLAYS: (What.REPLAYS,),
    INCIDENTS: (What.INCIDENTS,),
    MARKS: (What.GROUPS,),
    NOTES: (What.GROUPS,),
    PAUSES: (What.SOURCES,),
    STORMS: (What.SOURCES,),
    BEATS: (What.SOURCES,),
    HELD: (What.SOURCES,),
    APPROVALS: (What.APPROVALS,),
}
"""What a page has to ask for again, by the kind that changed."""
ACTS = {
    ON_LETTERS: ("edit", "undo", "repair", "import"),
    ON_SOURCES: ("pause", "resume"),
}
"""Acts that no other stamp need tell of."""
KINDS = tuple(kind for kind in WHAT if kind not in (LETTERS, *ACTS))

Stamps: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By kind and id: what is another one if it changed."""


class Look:
    """One look at a store: its stamps, and the documents and lines they were taken from."""

    def __init__(
        self, stamps: Stamps, documents: Mapping[str, Mapping[str, Document]], lines: Mapping[str, Line]
    ) -> None:
        self.stamps = stamps
        self.documents = documents
        self.lines = lines

    def running(self) -> list[Document]:
        """The replays that are under way."""
        return [document for document in self.documents[REPLAYS].values() if document.body["state"] in _UNDER_WAY]


_UNDER_WAY = ("freezing", "running")


async def look_at(store: Store, trail: Trail) -> Look:
    """Take the stamps of a store."""
    documents = {kind: await _newest(store, kind) for kind in KINDS}
    for note in await store.documents.list(OPEN_KIND, limit=_NEWEST):  # replays that newer ones hide
        if note.id not in documents[REPLAYS] and (found := await store.documents.get(REPLAYS, note.id)) is not None:
            documents[REPLAYS][note.id] = found
    lines = {str(line.seq): line for line in await trail.newest(_BLOCKS)}
    stamps: dict[str, Mapping[str, Any]] = {
        kind: {id: _stamp(document) for id, document in found.items()} for kind, found in documents.items()
    }
    stamps[LETTERS] = {LETTERS: (await newest_stamp(store.letters), await counts_stamp(store.letters))}
    for kind, actions in ACTS.items():
        stamps[kind] = {seq: line.action for seq, line in lines.items() if line.action in actions}
    return Look(stamps, documents, lines)


async def newest_stamp(letters: Letters) -> Any:
    """What is another one when a letter comes, or dies again."""
    page = await letters.search(Query(), limit=1)
    return [(letter.id, letter.created_at, letter.updated_at) for letter in page.letters]


async def counts_stamp(letters: Letters) -> Any:
    """What is another one when a letter comes, moves or goes. In a scope of tenants it takes a look at every letter."""
    tallies = await letters.tallies()
    return frozenset((tally.source, tally.state, tally.category, tally.count) for tally in tallies if tally.count)


def changes(before: Stamps, after: Stamps) -> dict[str, list[str]]:
    """The ids of what changed, by kind. Lines that the trail shows no more are no change."""
    found: dict[str, list[str]] = {}
    for kind, stamps in after.items():
        old = before.get(kind, {})
        names: Iterable[str] = stamps if kind in ACTS else {*stamps, *old}
        if ids := [id for id in names if stamps.get(id) != old.get(id)]:
            found[kind] = ids
    return found


async def _newest(store: Store, kind: str) -> dict[str, Document]:
    return {document.id: document for document in await store.documents.list(kind, limit=_NEWEST)}


def _stamp(document: Document) -> Any:
    """Its version; of a beat what a person would call a change."""
    if document.kind != BEATS:
        return document.version
    sources = [(working["source"], working["transport"]) for working in document.body.get("sources", ())]
    return sources, [value for name, value in document.body.items() if name not in _CHANGING]
