"""Letters, ledger and documents in this process's memory: for tests, and for work that may die with its process."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from heapq import heappop, heappush
from itertools import count, islice
from typing import Any

from msgspec.structs import replace

from redrive.clock import microseconds, moment
from redrive.errors import BadQuery
from redrive.forensics.query import Query, matches
from redrive.forensics.searchable import DEFAULT, Searchable
from redrive.forensics.series import Count, Point, Row, SeriesQuery, buried, points_of, resolved, rows_of, told
from redrive.model import (
    Category,
    Letter,
    LetterId,
    MessageId,
    Owner,
    Revision,
    State,
    Version,
    claimed,
    edited,
    is_anothers,
    letter_id,
    moved,
    rejoined,
    set_apart,
    version_of,
)
from redrive.stores.base import (
    MAY_BECOME,
    REPLAYABLE,
    Cursor,
    Document,
    Entry,
    EntryStatus,
    Group,
    GroupOrder,
    Hit,
    Page,
    StoreFeatures,
    Tally,
    hit_of,
    number_in,
    sorted_groups,
)

_CURSOR = re.compile(r"(-?\d{1,18})\.(\d{1,18})", re.ASCII)
_IN_FLIGHT = (State.RETRYING, State.REPLAYING)
_FEW = 64
_MOST_COUNTS = 10_000  # that are not summed up yet


class MemoryStore:
    """A store with the promises of the others, but for durability and other processes."""

    features = StoreFeatures(
        durable=False, atomic_claims=True, shared=False, counted_groups=False, counted_exactly=True
    )

    def __init__(self) -> None:
        self.series = MemorySeries()
        self.letters = MemoryLetters(self.series)
        self.versions = MemoryVersions(self.letters)
        self.ledger = MemoryLedger(self.letters)
        self.documents = MemoryDocuments()

    def search_as(self, searchable: Searchable) -> None:
        self.letters.searchable = searchable

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


class MemoryLetters:
    """Keeps letters in a dictionary; what is due is found in a heap, and pages in a list that is in order of age."""

    def __init__(self, series: MemorySeries | None = None) -> None:
        self.searchable = DEFAULT
        self._series = MemorySeries() if series is None else series
        self._letters: dict[LetterId, Letter] = {}
        self._order: dict[LetterId, int] = {}
        self._numbers = count(1)
        self._aged: list[LetterId] = []
        self._is_in_order = True
        self._pruned: set[LetterId] = set()  # those of them that are gone
        self._counts: Counter[tuple[str, State, Category]] = Counter()
        self._in_flight: set[LetterId] = set()
        self._schedule = _Schedule()
        self._versions: dict[LetterId, dict[int, Version]] = {}  # those before the newest

    async def record(self, letters: Sequence[Letter]) -> None:
        fresh, again, apart = list[Letter](), list[Letter](), list[Letter]()
        for letter in letters:
            old = self._letters.get(letter.id)
            if old is not None and is_anothers(old, letter):
                apart.append(set_apart(letter))
            elif old is None:
                self._append(letter)
                self._keep(None, letter)
                fresh.append(letter)
            elif (new := rejoined(old, letter)) is not None:
                self._is_in_order &= new.created_at == old.created_at
                self._keep(old, new)
                again.append(new)
        self._series.count(buried(fresh, again))
        if apart:
            await self.record(apart)

    async def get(self, id: LetterId) -> Letter | None:
        return self._letters.get(id)

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        found = list(islice(self._in_order(query, after, oldest_first), limit))
        return Page(tuple(found), _cursor(*self._age(found[-1].id)) if len(found) == limit and found else None)

    async def count(self, query: Query) -> int:
        return len(self._letters) if query == Query() else sum(1 for _ in self._selected(query))

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        members: dict[str, list[Letter]] = defaultdict(list)
        for letter in self._selected(query):
            members[letter.group].append(letter)
        groups = [_group(id, letters) for id, letters in members.items()]
        return sorted_groups(groups, order)[skip : skip + limit]

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        found: dict[str, set[str]] = {group: set() for group in groups}
        for letter in self._letters.values():
            if letter.message.tenant is not None and letter.group in found:
                found[letter.group].add(letter.message.tenant)
        return {group: hit_of(tenants, most) for group, tenants in found.items()}

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        counts = self._counts if query is None else Counter(map(_tallied, self._selected(query)))
        return [Tally(*key, number) for key, number in counts.items() if number]

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
        if query.due is not None and to is State.RETRYING:
            free = self._schedule.take(
                query.due,
                limit,
                self._letters,
                lambda letter: matches(query, letter, self.searchable) and self._is_free(letter, to, owner),
            )
        else:
            free = [letter for letter in self._selected(query) if self._is_free(letter, to, owner)]
            free = sorted(free, key=self._urgency)[:limit]
        taken = [claimed(letter, to, owner, now, until, replay) for letter in free]
        for old, new in zip(free, taken, strict=True):
            self._keep(old, new)
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
        moving = [letter for letter in moving if letter.state in expect and owner in (None, letter.owner)]
        for letter in moving:
            self._keep(letter, moved(letter, to, now))
        if to is State.RESOLVED and State.RESOLVED not in expect:
            self._series.count(resolved([(letter.message.source, letter.category) for letter in moving], now))
        return [letter.id for letter in moving]

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        doomed = (letter for letter in self._in_order(query, None, True) if letter.state not in _IN_FLIGHT)
        gone = [letter.id for letter in islice(doomed, limit)]
        for id in gone:
            self._counts[_tallied(self._letters.pop(id))] -= 1
            del self._order[id]
            self._versions.pop(id, None)
        self._pruned.update(gone)
        if len(self._pruned) > len(self._letters) + _FEW:
            self._sort()
            self._schedule.rebuild(self._letters.values(), self._order)
        return gone

    def _append(self, letter: Letter) -> None:
        if letter.id in self._pruned:
            self._sort()
        if self._aged:
            last = self._letters.get(self._aged[-1])
            self._is_in_order &= last is not None and last.created_at <= letter.created_at
        self._order[letter.id] = next(self._numbers)
        self._aged.append(letter.id)

    def _sort(self) -> None:
        """Sort the letters by age if they are not: they nearly always come in order."""
        self._aged = sorted(self._letters, key=self._age)
        self._is_in_order = True
        self._pruned.clear()

    def _keep(self, old: Letter | None, new: Letter) -> None:
        if old is not None:
            self._counts[_tallied(old)] -= 1
            if new.version > old.version:
                self._versions.setdefault(old.id, {})[old.version] = version_of(old)
        self._counts[_tallied(new)] += 1
        self._letters[new.id] = new
        if new.state in _IN_FLIGHT:
            self._in_flight.add(new.id)
        else:
            self._in_flight.discard(new.id)
        self._schedule.add(new, self._order[new.id])
        if self._schedule.size > 2 * len(self._letters) + _FEW:
            self._schedule.rebuild(self._letters.values(), self._order)

    def _selected(self, query: Query) -> Iterator[Letter]:
        named = self._named(query)
        letters = self._letters.values() if named is None else [self._letters[id] for id in named]
        return (letter for letter in letters if matches(query, letter, self.searchable))

    def _named(self, query: Query) -> list[LetterId] | None:
        """The letters that the query names, or those in flight, if it asks for no others; None if it does."""
        if query.ids is not None:
            return [id for id in dict.fromkeys(query.ids) if id in self._letters]
        if query.message_ids is not None:
            return [letter.id for name in dict.fromkeys(query.message_ids) for letter in self._of_message(name)]
        if query.states is not None and all(state in _IN_FLIGHT for state in query.states):
            return list(self._in_flight)
        return None

    def _in_order(self, query: Query, after: Cursor | None, oldest_first: bool) -> Iterator[Letter]:
        """The letters that the query selects, by age, after the cursor."""
        ids = self._named(query)
        if ids is not None:
            ids.sort(key=self._age)
        else:
            if not self._is_in_order or (self._pruned and after is not None):
                self._sort()
            ids = self._aged
        start, stop = 0, len(ids)
        if after is not None and oldest_first:
            start = bisect_right(ids, _position(after), key=self._age)
        elif after is not None:
            stop = bisect_left(ids, _position(after), key=self._age)
        places = range(start, stop) if oldest_first else range(stop - 1, start - 1, -1)
        letters = (self._letters.get(ids[place]) for place in places)
        return (letter for letter in letters if letter is not None and matches(query, letter, self.searchable))

    def _age(self, id: LetterId) -> tuple[datetime, int]:
        return self._letters[id].created_at, self._order[id]

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
        others = (other for name in letter.depends_on for other in self._of_message(name))
        return any(other.state not in (State.RESOLVED, State.ARCHIVED) for other in others)

    def _of_message(self, id: MessageId) -> Iterator[Letter]:
        """The letters of a message: at most one of each source, whose id follows from both."""
        ids = {letter_id(source, id) for source, _, _ in self._counts}
        return (self._letters[known] for known in ids if known in self._letters)


class MemoryVersions:
    """Keeps the messages of letters as they were."""

    def __init__(self, letters: MemoryLetters) -> None:
        self._letters = letters

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        letters = self._letters
        won = []
        for revision in revisions:
            old = letters._letters.get(revision.letter)
            if old is not None and (new := edited(old, revision)) is not None:
                letters._keep(old, new)
                won.append(new.id)
        return won

    async def list(self, letter: LetterId) -> Sequence[Version]:
        kept = self._letters._versions.get(letter, {})
        return [replace(kept[number], body=b"") for number in sorted(kept)]

    async def get(self, letter: LetterId, number: int) -> Version | None:
        return self._letters._versions.get(letter, {}).get(number)

    async def keep(self, versions: Sequence[Version]) -> None:
        for version in versions:
            if version.letter in self._letters._letters:
                self._letters._versions.setdefault(version.letter, {}).setdefault(version.number, version)


class _Schedule:
    """Which pending letters are due, the most urgent first, in O(log n) for each.

    Nothing is taken out when a letter changes: an entry that no longer says what its letter says is passed over.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[datetime, int, LetterId]] = []
        self._ready: list[tuple[int, datetime, int, LetterId]] = []  # the priority first: their time has come

    @property
    def size(self) -> int:
        return len(self._waiting) + len(self._ready)

    def add(self, letter: Letter, order: int) -> None:
        if letter.state is State.PENDING and letter.next_retry_at is not None:
            heappush(self._waiting, (letter.next_retry_at, order, letter.id))

    def take(
        self, due: datetime, limit: int, letters: Mapping[LetterId, Letter], fits: Callable[[Letter], bool]
    ) -> list[Letter]:
        """Take at most so many letters that are due by then and fit."""
        self._ripen(due, letters)
        taken: dict[LetterId, Letter] = {}
        left: list[tuple[int, datetime, int, LetterId]] = []
        while self._ready and len(taken) < limit:
            entry = heappop(self._ready)
            letter = letters.get(entry[3])
            if letter is None or not _is_so(letter, entry[1]) or letter.id in taken:
                continue
            if fits(letter):
                taken[letter.id] = letter
            else:
                left.append(entry)
        for entry in left:
            heappush(self._ready, entry)
        return list(taken.values())

    def _ripen(self, due: datetime, letters: Mapping[LetterId, Letter]) -> None:
        while self._waiting and self._waiting[0][0] <= due:
            at, order, id = heappop(self._waiting)
            letter = letters.get(id)
            if letter is not None and _is_so(letter, at):
                heappush(self._ready, (letter.message.priority, at, order, id))

    def rebuild(self, letters: Iterable[Letter], order: Mapping[LetterId, int]) -> None:
        """Build the schedule anew, without the entries that are passed over anyway."""
        self._waiting, self._ready = [], []
        for letter in letters:
            self.add(letter, order[letter.id])


def _is_so(letter: Letter, at: datetime) -> bool:
    return letter.state is State.PENDING and letter.next_retry_at == at


def _tallied(letter: Letter) -> tuple[str, State, Category]:
    return letter.message.source, letter.state, letter.category


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
            found = self._letters._in_order(query, None, True)
            allowed = REPLAYABLE
            lines |= {
                letter.id: Entry(replay, letter.id, EntryStatus.SELECTED, now)
                for letter in found
                if letter.state in allowed
            }
        return len(lines)

    async def entries(
        self, replay: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 500
    ) -> tuple[Sequence[Entry], Cursor | None]:
        lines = list(enumerate(self._lines[replay].values(), start=1))
        found = [(n, e) for n, e in lines if n > number_in(after) and status in (None, e.status)][:limit]
        return [entry for _, entry in found], str(found[-1][0]) if len(found) == limit and found else None

    async def of_letter(self, letter: LetterId, replays: Sequence[str]) -> Sequence[Entry]:
        found = [self._lines[replay].get(letter) for replay in replays if replay in self._lines]
        return [entry for entry in found if entry is not None]

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

    async def list(
        self, kind: str, *, limit: int = 1000, after: str | None = None, ascending: bool = False
    ) -> Sequence[Document]:
        found = [document for document in self._documents.values() if document.kind == kind]
        if after is not None:
            found = [document for document in found if (document.id > after if ascending else document.id < after)]
        return deepcopy(sorted(found, key=lambda document: document.id, reverse=not ascending)[:limit])

    async def delete(self, kind: str, id: str, *, expect: int | None = None) -> bool:
        old = self._documents.get((kind, id))
        if old is None or expect not in (None, old.version):
            return False
        del self._documents[kind, id]
        return True


class MemorySeries:
    """Keeps counts over time: what came since, and what is summed up."""

    def __init__(self) -> None:
        self._new: list[Count] = []
        self._rows: Counter[Row] = Counter()

    def count(self, counts: Iterable[Count]) -> None:
        self._new += counts
        if len(self._new) > _MOST_COUNTS:
            self._sum_up()

    async def add(self, counts: Sequence[Count]) -> None:
        self.count(counts)

    async def read(self, query: SeriesQuery) -> Sequence[Point]:
        self._sum_up()
        return told(points_of(self._rows, query))

    async def roll_up(self) -> int:
        self._sum_up()
        return 0

    async def prune(self, step: int, before: int) -> None:
        self._rows = Counter({row: number for row, number in self._rows.items() if row[0] != step or row[1] >= before})

    def _sum_up(self) -> None:
        self._rows.update(rows_of(self._new))
        self._new.clear()


def _group(id: str, letters: Sequence[Letter]) -> Group:
    newest = max(letters, key=lambda letter: letter.updated_at)
    oldest, youngest = min(letters, key=_created), max(letters, key=_created)
    return Group(
        id=id,
        count=len(letters),
        error_type=newest.last.type,
        message=newest.last.message,
        category=newest.category,
        sources=tuple(sorted({letter.message.source for letter in letters})),
        states=dict(Counter(letter.state for letter in letters)),
        first_at=min(letter.failures[0].at for letter in letters),
        last_at=max(letter.last.at for letter in letters),
        first_version=oldest.failures[0].version,
        last_version=youngest.last.version,
    )


def _created(letter: Letter) -> datetime:
    return letter.created_at


def _cursor(created_at: datetime, number: int) -> Cursor:
    return f"{microseconds(created_at)}.{number}"


def _position(cursor: Cursor) -> tuple[datetime, int]:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadQuery(f"{cursor!r} is not a cursor of this store: use `after` as the page before gave it")
    try:
        return moment(int(found[1])), int(found[2])
    except OverflowError:
        raise BadQuery(f"{cursor!r} is not a cursor of this store: no calendar has that time") from None


def open_store(url: str) -> MemoryStore:
    """The store of `memory://`; each is a store of its own."""
    return MemoryStore()
