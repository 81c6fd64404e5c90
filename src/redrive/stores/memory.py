"""Letters, ledger and documents in this process's memory: for tests, and for work that may die with its process."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from datetime import datetime
from itertools import count
from typing import Any

from redrive.clock import microseconds
from redrive.errors import BadQuery
from redrive.forensics.query import Query, matches
from redrive.model import Letter, LetterId, Owner, State, claimed, moved, rejoined
from redrive.stores.base import (
    MAY_BECOME,
    Cursor,
    Document,
    Entry,
    EntryStatus,
    Group,
    Page,
    StoreFeatures,
    Tally,
    number_in,
)

_CURSOR = re.compile(r"(-?\d{1,18})\.(\d{1,18})", re.ASCII)
_IN_FLIGHT = (State.RETRYING, State.REPLAYING)


class MemoryStore:
    """The same promises as the others, but for durability and other processes."""

    features = StoreFeatures(durable=False, atomic_claims=True, shared=False, counted_groups=False)

    def __init__(self) -> None:
        self.letters = MemoryLetters()
        self.ledger = MemoryLedger(self.letters)
        self.documents = MemoryDocuments()

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


class MemoryLetters:
    """Keeps letters in a dictionary, in the order they came."""

    def __init__(self) -> None:
        self._letters: dict[LetterId, Letter] = {}
        self._order: dict[LetterId, int] = {}
        self._numbers = count(1)

    async def record(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            old = self._letters.get(letter.id)
            if old is None:
                self._letters[letter.id] = letter
                self._order[letter.id] = next(self._numbers)
            elif (new := rejoined(old, letter)) is not None:
                self._letters[letter.id] = new

    async def get(self, id: LetterId) -> Letter | None:
        return self._letters.get(id)

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        found = sorted(self._selected(query), key=self._age, reverse=not oldest_first)
        if after is not None:
            place = _position(after)
            found = [one for one in found if (self._age(one) > place if oldest_first else self._age(one) < place)]
        page = found[:limit]
        return Page(tuple(page), _cursor(*self._age(page[-1])) if len(page) == limit and page else None)

    async def count(self, query: Query) -> int:
        return len(self._selected(query))

    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        members: dict[str, list[Letter]] = defaultdict(list)
        for letter in self._selected(query):
            members[letter.group].append(letter)
        groups = [_group(id, letters) for id, letters in members.items()]
        return sorted(groups, key=lambda group: (-group.count, group.id))[:limit]

    async def tallies(self) -> Sequence[Tally]:
        counts = Counter((one.message.source, one.state, one.category) for one in self._letters.values())
        return [Tally(*key, number) for key, number in counts.items()]

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
        free = [one for one in self._selected(query) if self._is_free(one, to, owner)]
        taken = [claimed(one, to, owner, now, until, replay) for one in sorted(free, key=self._urgency)[:limit]]
        self._letters.update((one.id, one) for one in taken)
        return taken

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        moving = [self._letters[id] for id in dict.fromkeys(ids) if id in self._letters]
        moving = [one for one in moving if one.state in expect and owner in (None, one.owner)]
        for one in moving:
            self._letters[one.id] = moved(one, to, now)
        return [one.id for one in moving]

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        found = [one for one in self._selected(query) if one.state not in _IN_FLIGHT]
        gone = [one.id for one in sorted(found, key=self._age)[:limit]]
        for id in gone:
            del self._letters[id], self._order[id]
        return gone

    def _selected(self, query: Query) -> list[Letter]:
        if query.ids is not None:
            known = (self._letters.get(id) for id in dict.fromkeys(query.ids))
            return [letter for letter in known if letter is not None and matches(query, letter)]
        return [letter for letter in self._letters.values() if matches(query, letter)]

    def _age(self, letter: Letter) -> tuple[int, int]:
        return microseconds(letter.created_at), self._order[letter.id]

    def _urgency(self, letter: Letter) -> tuple[int, bool, float, int]:
        due = letter.next_retry_at
        return (
            letter.message.priority,
            due is not None,
            due.timestamp() if due else 0.0,
            self._order[letter.id],
        )

    def _is_free(self, letter: Letter, to: State, owner: Owner) -> bool:
        may = letter.state in MAY_BECOME[to] and (letter.state is not to or letter.owner == owner)
        return may and not self._waits(letter)

    def _waits(self, letter: Letter) -> bool:
        if not letter.depends_on:
            return False
        wanted = set(letter.depends_on)
        others = (one for one in self._letters.values() if one.message.id in wanted)
        return any(one.state not in (State.RESOLVED, State.ARCHIVED) for one in others)


class MemoryLedger:
    """Keeps the lines of every replay."""

    def __init__(self, letters: MemoryLetters) -> None:
        self._letters = letters
        self._lines: dict[str, dict[LetterId, Entry]] = defaultdict(dict)
        self._frozen: set[str] = set()  # a selection of nothing included

    async def freeze(self, replay: str, query: Query, *, now: datetime) -> int:
        lines = self._lines[replay]
        if replay not in self._frozen:
            self._frozen.add(replay)
            found = sorted(self._letters._selected(query), key=self._letters._age)
            allowed = (State.PENDING, State.EXHAUSTED)
            lines |= {one.id: Entry(replay, one.id, EntryStatus.SELECTED, now) for one in found if one.state in allowed}
        return len(lines)

    async def entries(
        self, replay: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 500
    ) -> tuple[Sequence[Entry], Cursor | None]:
        lines = list(enumerate(self._lines[replay].values(), start=1))
        found = [(n, e) for n, e in lines if n > number_in(after) and status in (None, e.status)][:limit]
        return [entry for _, entry in found], str(found[-1][0]) if len(found) == limit and found else None

    async def mark(self, entries: Iterable[Entry]) -> None:
        final = (EntryStatus.RESOLVED, EntryStatus.FAILED)
        for entry in entries:
            old = self._lines[entry.replay].get(entry.letter)
            if old is None or entry.status in final or old.status is EntryStatus.SELECTED:
                self._lines[entry.replay][entry.letter] = entry

    async def tally(self, replay: str) -> dict[EntryStatus, int]:
        return dict(Counter(entry.status for entry in self._lines[replay].values()))


class MemoryDocuments:
    """Keeps small JSON objects."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], Document] = {}

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        old = self._documents.get((kind, id))
        version = old.version if old else 0
        if expect is not None and version != expect:
            return False
        self._documents[kind, id] = Document(kind, id, version + 1, deepcopy(body))
        return True

    async def get(self, kind: str, id: str) -> Document | None:
        return deepcopy(self._documents.get((kind, id)))

    async def list(self, kind: str, *, limit: int = 1000) -> Sequence[Document]:
        found = [one for one in self._documents.values() if one.kind == kind]
        return deepcopy(sorted(found, key=lambda one: one.id, reverse=True)[:limit])

    async def delete(self, kind: str, id: str) -> bool:
        return self._documents.pop((kind, id), None) is not None


def _group(id: str, letters: Sequence[Letter]) -> Group:
    newest = max(letters, key=lambda one: one.updated_at)
    return Group(
        id=id,
        count=len(letters),
        error_type=newest.last.type,
        message=newest.last.message,
        category=newest.category,
        sources=tuple(sorted({one.message.source for one in letters})),
        states=dict(Counter(one.state for one in letters)),
        first_at=min(one.failures[0].at for one in letters),
        last_at=max(one.last.at for one in letters),
    )


def _cursor(created_at: int, number: int) -> Cursor:
    return f"{created_at}.{number}"


def _position(cursor: Cursor) -> tuple[int, int]:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadQuery(f"{cursor!r} is not a cursor of this store: use `after` as the page before gave it")
    return int(found[1]), int(found[2])


def open_store(url: str) -> MemoryStore:
    """`memory://`: each is its own."""
    return MemoryStore()
