"""Letters in Redis. Every change is compare-and-set on the head that was read (lua/swap.lua)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import microseconds, moment
from redrive.forensics.query import Query, matches
from redrive.forensics.series import minute_of
from redrive.model import (
    WAITING,
    Category,
    Letter,
    LetterId,
    Owner,
    Revision,
    State,
    claimed,
    edited,
    is_anothers,
    letter_id,
    moved,
    rejoined,
    set_apart,
)
from redrive.stores.base import AT_REST, MAY_BECOME, Cursor, Group, GroupOrder, Hit, Page, Tally, hit_of, sorted_groups
from redrive.stores.redis.access import Access
from redrive.stores.redis.codec import Found, changed_head, document_of, head_of
from redrive.stores.redis.entries import EntryShape
from redrive.stores.redis.index import cursor_of, due_index, is_counted, position, wide_index
from redrive.stores.redis.reader import Reader
from redrive.stores.redis.versions import keep_versions
from redrive.stores.scoped import groups_within

_CLOSED = (State.RESOLVED, State.ARCHIVED)
_TOGETHER, _BYTES = 500, 4 << 20  # how much one script changes: the server does nothing else meanwhile


class Change(Struct, frozen=True, gc=False):
    """A letter as it was read, and as it is to be; empty bytes stand for nothing, or for no change."""

    id: LetterId
    was: bytes = b""
    head: bytes = b""
    document: bytes = b""
    entry: bytes = b""
    counted: bytes = b""  # what it counts over time, as lua/swap.lua takes it

    @property
    def size(self) -> int:
        return len(self.was) + len(self.head) + len(self.document) + len(self.entry)


_LOOKED_AT = 2000  # letters of a group, for its tenants


class RedisLetters:
    """Keeps letters in hashes and finds them by sorted sets."""

    def __init__(self, access: Access, shape: EntryShape | None) -> None:
        self._access = access
        self._shape = shape
        self.reader = Reader(access)

    async def record(self, letters: Sequence[Letter]) -> None:
        """Write the letters unseen: as a rule all are new. Those that are known rejoin theirs."""
        known = await self._swap(
            [(letter, _buried(self._written(letter), letter)) for letter in letters], _descriptions(letters), "record"
        )
        while known:
            known = await self._rejoin(known)

    async def get(self, id: LetterId) -> Letter | None:
        found = await self.reader.load([id], documents=True)
        return found[0].letter if found else None

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        place = None if after is None else position(after)
        query = await self.reader.within(query)
        page: list[Found] = []
        async for some in self.reader.selected(
            query, oldest_first=oldest_first, documents=True, after=place, limit=limit
        ):
            page += some[: limit - len(page)]
            if len(page) >= limit:
                break
        more = cursor_of(page[-1].head) if len(page) == limit and page else None
        return Page(tuple([stored.letter for stored in page]), more)

    async def count(self, query: Query) -> int:
        query = await self.reader.within(query)
        if is_counted(query):
            return sum([row[-1] for row in await self._counted(query)])
        return sum([len(some) async for some in self.reader.selected(query, oldest_first=True)])

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        if query.scope is not None:
            query = await self.reader.within(query)
            return await groups_within(self, query, limit=limit, skip=skip, order=order)
        kinds: Counter[tuple[str, State, str]] = Counter()
        if is_counted(query):
            for group, source, state, _, number in await self._counted(query, by_group=True):
                kinds[group, state, source] += number
        else:
            async for some in self.reader.selected(query, oldest_first=True):
                kinds.update((stored.head.group, stored.head.state, stored.head.source) for stored in some)
        return await self._described(kinds, limit, skip, order)

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        return {group: await self._tenants_of(group, most) for group in groups}

    async def _tenants_of(self, group: str, most: int) -> Hit:
        """By the heads of its newest letters: there is no list of them."""
        tenants, looked = set[str](), 0
        async for some in self.reader.selected(Query(groups=(group,)), oldest_first=False):
            tenants |= {stored.head.tenant for stored in some if isinstance(stored.head.tenant, str)}
            looked += len(some)
            if looked >= _LOOKED_AT:
                break
        hit = hit_of(tenants, most)
        return replace(hit, is_all=hit.is_all and looked < _LOOKED_AT)

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        query = await self.reader.within(query or Query())
        counts: Counter[tuple[str, State, Category]] = Counter()
        if is_counted(query):
            for _, source, state, kind, number in await self._counted(query):
                counts[source, state, kind] += number
        else:
            async for some in self.reader.selected(query, oldest_first=True):
                counts.update((stored.head.source, stored.head.state, stored.head.category) for stored in some)
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
        """Claim letters; where another process was faster with one, take the next."""
        query = await self.reader.within(query)
        taken: list[Letter] = []
        async for some in self._claimable(query, to, max(limit, 1)):
            free = (await self._free(some, query, to, owner))[: limit - len(taken)]
            after = [claimed(stored.letter, to, owner, now, until, replay) for stored in free]
            changes = [
                (letter, Change(stored.id, stored.raw, changed_head(letter, stored.head)))
                for letter, stored in zip(after, free, strict=True)
            ]
            lost = {letter.id for letter in await self._swap(changes)}
            taken += [letter for letter in after if letter.id not in lost]
            if len(taken) >= limit:
                break
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
        """Move letters; one that somebody changed meanwhile is read again, since it may still be moved."""
        won: list[LetterId] = []
        left: Collection[LetterId] = ids
        while left:
            found = await self.reader.load(left, documents=False)
            going = [stored for stored in found if stored.head.state in expect and owner in (None, stored.head.owner)]
            changes = [(stored.id, _moved(stored, to, now, counts=State.RESOLVED not in expect)) for stored in going]
            left = await self._swap(changes)
            lost = set(left)
            won += [stored.id for stored in going if stored.id not in lost]
        return won

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        gone: list[LetterId] = []
        query = await self.reader.within(query)
        states = AT_REST if query.states is None else tuple(state for state in query.states if state in AT_REST)
        async for some in self.reader.selected(replace(query, states=states), oldest_first=True, limit=limit):
            doomed = some[: limit - len(gone)]
            lost = set(await self._swap([(stored.id, Change(stored.id, stored.raw)) for stored in doomed]))
            gone += [stored.id for stored in doomed if stored.id not in lost]
            if len(gone) >= limit:
                break
        return gone

    # -- writing ---------------------------------------------------------------------------------------------------

    async def _rejoin(self, letters: Sequence[Letter]) -> list[Letter]:
        """Join letters to those that are known; returns those that somebody else changed meanwhile, and those of other
        tenants, set apart: they are still to be recorded."""
        ids = {letter.id for letter in letters}
        before = {stored.id: stored for stored in await self.reader.load(ids, documents=True)}
        left = {stored.id: stored for stored in await self.reader.load(ids - before.keys(), documents=False)}
        after: dict[LetterId, Letter] = {}
        apart: list[Letter] = []
        for letter in letters:
            known = after.get(letter.id) or (before[letter.id].letter if letter.id in before else None)
            if known is not None and is_anothers(known, letter):
                apart.append(set_apart(letter))
                continue
            joined = letter if known is None else rejoined(known, letter)
            if joined is not None:
                after[letter.id] = joined
        olds = [before[id].letter for id, letter in after.items() if id in before]
        await keep_versions(self._access, [old for old in olds if after[old.id].version > old.version])
        changes = [
            (letter, _buried(change, letter, again=letter.id in before))
            for letter in after.values()
            for change in [self._written(letter, before.get(letter.id) or left.get(letter.id), letter.id in before)]
        ]
        lost = {letter.id for letter in await self._swap(changes, _descriptions(list(after.values())), "record")}
        return [*(letter for letter in letters if letter.id in lost), *apart]

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        """Edit letters; one that somebody changed meanwhile is read again, since it may still be edited."""
        won: list[LetterId] = []
        left = {revision.letter: revision for revision in revisions}
        while left:
            found = await self.reader.load(left, documents=True)
            new = {stored.id: edited(stored.letter, left[stored.id]) for stored in found}
            going = [(letter, stored) for stored in found if (letter := new[stored.id]) is not None]
            await keep_versions(self._access, [stored.letter for _, stored in going])
            lost = await self._swap([(letter.id, self._written(letter, stored, True)) for letter, stored in going])
            won += [letter.id for letter, _ in going if letter.id not in lost]
            left = {id: left[id] for id in lost}
        return won

    def _written(self, letter: Letter, before: Found | None = None, stays: bool = False) -> Change:
        """The change that writes a whole letter; it keeps its number if it stays the same letter."""
        was, seq = (b"", 0) if before is None else (before.raw, before.head.seq if stays else 0)
        body = letter.message.body
        if self._shape is None:
            return Change(letter.id, was, head_of(letter, seq=seq), document_of(letter, body))
        entry = self._shape.encode(letter)
        score = float(microseconds(self._shape.moved_at(letter)) // 1000)
        at = entry.find(body) if body else -1
        head = head_of(letter, seq=seq, score=score, is_body_in_entry=at >= 0)
        document = document_of(letter, body if at < 0 else (at, at + len(body)))
        return Change(letter.id, was, head, document, entry)

    async def _swap(
        self, changes: Sequence[tuple[Any, Change]], about: Sequence[bytes] = (), name: str = "swap"
    ) -> list[Any]:
        """Make the changes; returns what stands beside those that somebody else was faster with."""
        lost: list[Any] = []
        for some in _parts(changes):
            parts = (
                part
                for _, change in some
                for part in (change.id, change.was, change.head, change.document, change.entry, change.counted)
            )
            won = await self._access.on_letters(name, len(some), *parts, *about)
            lost += [beside for (beside, _), flag in zip(some, won, strict=True) if flag != _WON]
        return lost

    # -- claiming --------------------------------------------------------------------------------------------------

    async def _claimable(self, query: Query, to: State, limit: int) -> AsyncIterator[list[Found]]:
        """Letters that may be claimed, the most urgent first. Of what is due, only as much is read as is taken."""
        if query.due is not None and query.ids is None and query.message_ids is None and query.id_prefix is None:
            for priority in await self._priorities():
                async for some in self.reader.pages(
                    due_index(query, priority), ascending=True, documents=True, batch=limit
                ):
                    yield some
            return
        states = (
            MAY_BECOME[to]
            if query.states is None
            else tuple(state for state in MAY_BECOME[to] if state in query.states)
        )
        found = [
            (_urgency(stored), stored.id)
            async for some in self.reader.selected(replace(query, states=states), oldest_first=True)
            for stored in some
        ]
        ids = [id for _, id in sorted(found)]
        for start in range(0, len(ids), limit):
            letters = await self.reader.load(ids[start : start + limit], documents=True)
            yield letters

    async def _priorities(self) -> list[str]:
        """The priorities of letters that wait for a retry, the most urgent first."""
        fields = await self._access.command("HKEYS", f"{self._access.letters}:waiting")
        return sorted({field.partition(b":")[0].decode() for field in fields}, key=int)

    async def _free(self, letters: Sequence[Found], query: Query, to: State, owner: Owner) -> list[Found]:
        """The letters that may be claimed, and wait for no other."""
        may = [
            stored
            for stored in letters
            if stored.head.state in MAY_BECOME[to]
            and (stored.head.state is not to or stored.head.owner == owner)
            and matches(query, stored.letter, self.reader.searchable)
        ]
        if not any(stored.head.depends_on for stored in may):
            return may
        sources = await self.reader.sources()
        wanted = {
            stored.id: [letter_id(source, id) for source in sources for id in stored.head.depends_on]
            for stored in may
            if stored.head.depends_on
        }
        others = await self.reader.load([id for ids in wanted.values() for id in ids], documents=False)
        open_ones = {stored.id for stored in others if stored.head.state not in _CLOSED}
        return [stored for stored in may if open_ones.isdisjoint(wanted.get(stored.id, ()))]

    # -- counting --------------------------------------------------------------------------------------------------

    async def _counted(self, query: Query, *, by_group: bool = False) -> list[tuple[str, str, State, Category, int]]:
        """Group, source, state, category and number of what the counters know; the group only if asked for."""
        await self._forget_taken()
        by_group = by_group or query.groups is not None
        counts = await self._access.command("HGETALL", f"{self._access.letters}:{'tallies' if by_group else 'counts'}")
        rows = [(*_kind(field, by_group), int(number)) for field, number in counts.items()]
        wanted = (query.groups, query.sources, query.states, query.categories)
        return [row for row in rows if all(values is None or row[at] in values for at, values in enumerate(wanted))]

    async def _forget_taken(self) -> None:
        """Forget letters whose entries somebody else took: then entries are fewer than letters."""
        if self._shape is not None:
            heads, entries, aside = await self._access.sizes()
            if heads > entries + aside:
                async for _ in self.reader.pages(wide_index(Query()), ascending=True, documents=True):
                    pass

    async def _described(
        self, kinds: Counter[tuple[str, State, str]], limit: int, skip: int, order: GroupOrder
    ) -> list[Group]:
        states: dict[str, Counter[State]] = defaultdict(Counter)
        sources: dict[str, set[str]] = defaultdict(set)
        for (group, state, source), number in kinds.items():
            states[group][state] += number
            sources[group].add(source)
        chosen = list(states)
        if order is GroupOrder.LETTERS:
            sizes = {group: counts.total() for group, counts in states.items()}
            chosen = sorted(chosen, key=lambda group: (-sizes[group], group))[skip : skip + limit]
            skip = 0
        if not chosen:
            return []
        told = await self._access.command("HMGET", f"{self._access.letters}:groups", *chosen)
        described = [
            _group(group, about, states[group], sources[group])
            for group, about in zip(chosen, told, strict=True)
            if about is not None
        ]
        page = sorted_groups(described, order)[skip : skip + limit]
        return [await self._with_versions(group) for group in page]

    async def _with_versions(self, group: Group) -> Group:
        """The group with the versions in its oldest and its newest letter."""
        query = Query(groups=(group.id,))
        oldest, newest = [await self.search(query, limit=1, oldest_first=way) for way in (True, False)]
        if not oldest.letters or not newest.letters:
            return group  # its last letter has just left
        first, last = oldest.letters[0].failures[0].version, newest.letters[0].last.version
        return replace(group, first_version=first, last_version=last)


_WON = ord("1")


def _moved(stored: Found, to: State, now: datetime, *, counts: bool) -> Change:
    counted = b"r%d" % minute_of(now) if counts and to is State.RESOLVED else b""
    return Change(stored.id, stored.raw, changed_head(moved(stored.letter, to, now), stored.head), counted=counted)


def _buried(change: Change, letter: Letter, *, again: bool = False) -> Change:
    """The change with what it counts over time. A letter that only waits in the store is not dead."""
    if letter.reason in WAITING:
        return change
    return replace(change, counted=b"%c%d" % (b"a" if again and letter.resends else b"b", minute_of(letter.created_at)))


def _urgency(stored: Found) -> tuple[int, bool, int, int]:
    due = stored.head.next_retry_at
    return stored.head.priority, due is not False, int(due), stored.head.seq


def _parts(changes: Sequence[tuple[Any, Change]]) -> Iterator[list[tuple[Any, Change]]]:
    """Changes in parts that a script can make without keeping everybody else waiting."""
    some: list[tuple[Any, Change]] = []
    size = 0
    for change in changes:
        if some and (len(some) >= _TOGETHER or size + change[1].size > _BYTES):
            yield some
            some, size = [], 0
        some.append(change)
        size += change[1].size
    if some:
        yield some


def _descriptions(letters: Iterable[Letter]) -> list[bytes]:
    """The groups among these letters, and what the letters of each have in common."""
    members: dict[str, list[Letter]] = defaultdict(list)
    for letter in letters:
        members[letter.group].append(letter)
    described: list[bytes] = []
    for group, some in members.items():
        last = some[-1].last
        first_at = min(microseconds(letter.failures[0].at) for letter in some)
        last_at = max(microseconds(letter.last.at) for letter in some)
        about = (last.type, last.message, last.category, first_at, last_at)
        described += [group.encode(), msgspec.msgpack.encode(about)]
    return described


def _kind(field: bytes, by_group: bool) -> tuple[str, str, State, Category]:
    """The parts of a field of the counters."""
    if not by_group:
        state, category, source = field.split(b":", 2)
        return "", source.decode(), State(state.decode()), Category(category.decode())
    state, category, length, rest = field.split(b":", 3)
    group, source = rest[: int(length)], rest[int(length) :]
    return group.decode(), source.decode(), State(state.decode()), Category(category.decode())


def _group(id: str, about: bytes, states: Counter[State], sources: set[str]) -> Group:
    type, message, category, first_at, last_at = msgspec.msgpack.decode(about)
    return Group(
        id=id,
        count=states.total(),
        error_type=type,
        message=message,
        category=Category(category),
        sources=tuple(sorted(sources)),
        states=dict(states),
        first_at=moment(first_at),
        last_at=moment(last_at),
    )
