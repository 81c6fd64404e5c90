"""Letters in a table: what is searched has a column, the rest is in the store's shape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace
from psycopg.errors import UniqueViolation

from redrive.clock import microseconds, moment
from redrive.drivers.postgresql.link import copy, rows
from redrive.drivers.postgresql.pool import Connection
from redrive.forensics.query import Query
from redrive.forensics.series import buried, resolved
from redrive.model import (
    Category,
    Letter,
    LetterId,
    Owner,
    Revision,
    State,
    edited,
    is_anothers,
    rejoined,
    set_apart,
    version_of,
)
from redrive.stores.base import AT_REST, MAY_BECOME, Cursor, Group, GroupOrder, Hit, Page, Tally, hit_of, sorted_groups
from redrive.stores.postgresql.access import Access
from redrive.stores.postgresql.codec import (
    COLUMNS,
    INSERTED,
    Row,
    clean,
    cleaned_all,
    keyed,
    letter_of,
    row_of,
    unclean,
)
from redrive.stores.postgresql.query import Condition, beyond, cursor_of, in_order, is_counted, where
from redrive.stores.postgresql.series import PostgresSeries
from redrive.stores.postgresql.texts import Texts
from redrive.stores.postgresql.versions import version_row
from redrive.stores.rounds import by_id, rounds
from redrive.stores.scoped import groups_within
from redrive.stores.shape import Shape, decoded

_AT_ONCE = -(1 << 63)
_TYPES = list(INSERTED.values())
_NAMES = ", ".join(INSERTED)
_VALUES = ", ".join(f"%({name})s" for name in INSERTED)

_GROUP_ORDERS = {
    "groups": {
        GroupOrder.LETTERS: "2",
        GroupOrder.LAST_SEEN: "max(l.last_at)",
        GroupOrder.FIRST_SEEN: "min(l.first_at)",
    },
    "groups_scan": {
        GroupOrder.LETTERS: "c.count",
        GroupOrder.LAST_SEEN: "max(t.last_at)",
        GroupOrder.FIRST_SEEN: "min(t.first_at)",
    },
}


class _Overtaken(Exception):
    """Another process has recorded a letter of the batch after we looked for it."""


class PostgresLetters:
    """Keeps letters in a table, with what is searched in columns and the rest in the store's shape."""

    def __init__(self, access: Access, shape: Shape, series: PostgresSeries) -> None:
        self._access = access
        self._series = series
        self._shape = shape
        self.texts = Texts(access, self)

    async def record(self, letters: Sequence[Letter]) -> None:
        """Record in one transaction: as a rule all are new, and are copied in. Those that are known rejoin theirs."""
        batches = rounds(letters, by_id)

        async def work(connection: Connection) -> None:
            for some in batches:
                await self._record(connection, some)

        if batches:
            await self._access.run_again(work, _Overtaken)  # who overtook us is known then

    async def get(self, id: LetterId) -> Letter | None:
        found = await self._fetch("get", {"id": clean(id)})
        return letter_of(found[0], self._shape) if found else None

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        query = await self.plain(query)
        if query.text:
            ids, behind = await self.texts.look(query, after, limit, oldest_first)
            page = await self.search(Query(ids=tuple(ids)), limit=max(limit, 1), oldest_first=oldest_first)
            return Page(page.letters, behind)
        place = beyond(after, oldest_first)
        condition = in_order(query)
        found = await self._fetch(
            "search",
            {**condition.parameters, **place.parameters, "limit": limit},
            keys=condition.keys,
            where=condition.sql + place.sql,
            way="ASC" if oldest_first else "DESC",
        )
        letters = tuple(letter_of(row, self._shape) for row in found)
        return Page(letters, cursor_of(found[-1][1], found[-1][0]) if len(found) == limit else None)

    async def count(self, query: Query) -> int:
        query = await self.plain(query)
        condition = where(query)
        name = "count_tallies" if is_counted(query) else "count"
        [[number]] = await self._fetch(name, condition.parameters, where=condition.sql)
        return int(number)

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        if query.scope is not None:
            query = await self.plain(query)
            return await groups_within(self, query, limit=limit, skip=skip, order=order)
        query = await self.plain(query)
        condition = where(query)
        name = "groups" if is_counted(query) else "groups_scan"
        page = {**condition.parameters, "limit": limit, "skip": skip}
        found = await self._fetch(name, page, where=condition.sql, order=_GROUP_ORDERS[name][order])
        ends = await self._fetch("group_ends", {"ids": sorted({row[0] for row in found})}) if found else []
        first = {id: decoded(self._shape, document).failures[0].version for id, document, _ in ends}
        last = {id: decoded(self._shape, document).last.version for id, _, document in ends}
        groups = [
            replace(group, first_version=first.get(id, ""), last_version=last.get(id, ""))
            for id, group in _groups(found)
        ]
        return sorted_groups(groups, order)

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        names = {keyed(group): group for group in groups}
        rows = await self._fetch("tenants_of_groups", {"groups": list(names), "most": most + 1})
        found: dict[str, list[str]] = {group: [] for group in groups}
        for group, tenant in rows:
            found[names[group]].append(unclean(tenant))
        return {group: hit_of(tenants, most) for group, tenants in found.items()}

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        query = await self.plain(query or Query())
        condition = where(query)
        name = "tallies" if is_counted(query) else "tallies_scan"
        found = await self._fetch(name, condition.parameters, where=condition.sql)
        return [Tally(unclean(source), State(state), Category(kind), count) for source, state, kind, count in found]

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
        query = await self.plain(query)
        claim = {
            "from": [state.value for state in MAY_BECOME[to]],
            "to": to.value,
            "me": clean(owner),
            "until": microseconds(until),
            "now": microseconds(now),
            "replay": None if replay is None else clean(replay),
            "limit": limit,
        }
        if query.due is None or query.sources is None:
            return self._most_urgent(await self._claim(where(query), claim))
        return await self._claim_due(query, claim, limit)

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        parameters = {
            "ids": cleaned_all(ids),
            "expect": [state.value for state in expect],
            "to": to.value,
            "now": microseconds(now),
            "owner": None if owner is None else clean(owner),
        }
        if to is not State.RESOLVED or State.RESOLVED in expect:
            return [id for id, _, _ in await self._fetch("move", parameters)]

        async def work(connection: Connection) -> list[LetterId]:
            gone = await rows(connection, self._sql("move"), parameters)
            await self._series.count(connection, resolved([(unclean(source), kind) for _, source, kind in gone], now))
            return [id for id, _, _ in gone]

        return await self._access.run(work)

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        query = await self.plain(query)
        states = AT_REST if query.states is None else tuple(state for state in query.states if state in AT_REST)
        query = replace(query, states=states)
        first, still = in_order(query), where(query)
        parameters = {**still.parameters, **first.parameters, "limit": limit}
        return [
            id for (id,) in await self._fetch("prune", parameters, keys=first.keys, where=first.sql, still=still.sql)
        ]

    async def _record(self, connection: Connection, letters: Sequence[Letter]) -> None:
        ids = {"ids": [letter.id for letter in letters]}
        found = await rows(connection, self._sql("known"), ids)
        known = {letter.id: letter for letter in (letter_of(row, self._shape) for row in found)}
        new = [letter for letter in letters if letter.id not in known]
        await self._copy(connection, new)
        died = [letter for letter in letters if letter.id in known]
        apart = [letter for letter in died if is_anothers(known[letter.id], letter)]
        rejoins = [rejoined(known[letter.id], letter) for letter in died if letter not in apart]
        joined = [letter for letter in rejoins if letter is not None]
        await self._write_over(connection, known, joined)
        await self._series.count(connection, buried(new, joined))
        if apart:
            await self._record(connection, [set_apart(letter) for letter in apart])

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        """Edit letters in one transaction; returns those that were as expected."""
        parameters = {"ids": cleaned_all(revision.letter for revision in revisions)}

        async def work(connection: Connection) -> list[LetterId]:
            found = await rows(connection, self._sql("known"), parameters)
            known = {letter.id: letter for letter in (letter_of(row, self._shape) for row in found)}
            new = [edited(known[item.letter], item) for item in revisions if item.letter in known]
            changed = [letter for letter in new if letter is not None]
            await self._write_over(connection, known, changed)
            return [letter.id for letter in changed]

        return await self._access.run(work)

    async def _write_over(
        self, connection: Connection, known: Mapping[LetterId, Letter], letters: Sequence[Letter]
    ) -> None:
        """Write letters over those that are known, and locked. What the message of one was is kept first."""
        replaced = [known[letter.id] for letter in letters if letter.version > known[letter.id].version]
        versions = [version_row(version_of(letter)) for letter in replaced]
        if versions:
            await connection.cursor().executemany(self._sql("keep_version").encode(), versions)
        if letters:
            statement = self._sql("rejoin", inserted=_NAMES, values=_VALUES)
            changed = [dict(zip(INSERTED, row_of(letter, self._shape), strict=True)) for letter in letters]
            await connection.cursor().executemany(statement.encode(), changed)
            anew = {"ids": sorted(letter.id for letter in letters)}
            await rows(connection, self._sql("search_anew"), anew)

    async def _copy(self, connection: Connection, letters: Sequence[Letter]) -> None:
        if not letters:
            return
        made = (row_of(letter, self._shape) for letter in letters)
        try:
            await copy(connection, self._sql("copy", inserted=_NAMES), _TYPES, made)
        except UniqueViolation as error:
            raise _Overtaken from error

    async def _claim_due(self, query: Query, claim: dict[str, Any], limit: int) -> Sequence[Letter]:
        """Of what is due only as much is read as is taken: by source and priority, the most urgent first."""
        sources = {"sources": [keyed(source) for source in dict.fromkeys(query.sources or ())]}
        taken: list[Letter] = []
        for source, priority in await self._fetch("priorities", sources):
            if len(taken) >= limit:
                break
            condition = where(replace(query, sources=None))
            only = Condition(
                f"l.source = %(only_source)s AND l.priority = %(only_priority)s AND {condition.sql}",
                {**condition.parameters, "only_source": source, "only_priority": priority},
            )
            taken += self._most_urgent(await self._claim(only, {**claim, "limit": limit - len(taken)}))
        return taken

    async def _claim(self, condition: Condition, claim: Mapping[str, Any]) -> Sequence[Row]:
        return await self._fetch("claim", {**condition.parameters, **claim}, where=condition.sql)

    def _most_urgent(self, found: Sequence[Row]) -> Sequence[Letter]:
        """What RETURNING gives in any order, as it was claimed."""
        letters = [(letter_of(row, self._shape), row) for row in found]
        letters.sort(key=lambda pair: _urgency(*pair))
        return [letter for letter, _ in letters]

    async def plain(self, query: Query) -> Query:
        """The query with its scope as sources and tenants, and its text as ids, if few letters have it."""
        return await self.texts.plain(query)

    async def unsearched(self, limit: int) -> list[tuple[int, Letter]]:
        """Letters whose text is still to be made, with their marks."""
        found = await self._fetch("unsearched", {"limit": limit})
        return [(row[0], letter_of(row[1:], self._shape)) for row in found]

    def _sql(self, name: str, **parts: str) -> str:
        return self._access.sql(name, columns=COLUMNS, **parts)

    async def _fetch(self, name: str, parameters: Mapping[str, Any], **parts: str) -> Sequence[Row]:
        return await self._access.fetch(self._sql(name, **parts), parameters)


def _urgency(letter: Letter, row: Row) -> tuple[int, int, int]:
    seq, due = row[0], row[4]
    return letter.message.priority, _AT_ONCE if due is None else due, seq


def _groups(found: Iterable[Row]) -> list[tuple[str, Group]]:
    """Rows of (group…, source, state, count) as groups, each with its id as it is written."""
    members: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        members[row[0]].append(row)
    return [(id, _group(rows)) for id, rows in members.items()]


def _group(members: Sequence[Row]) -> Group:
    id, error_type, message, category, first_at, last_at, *_ = members[0]
    states: Counter[State] = Counter()
    for *_, state, count in members:
        states[State(state)] += count
    return Group(
        id=unclean(id),
        count=states.total(),
        error_type=unclean(error_type),
        message=unclean(message),
        category=Category(category),
        sources=tuple(sorted({unclean(row[6]) for row in members})),
        states=dict(states),
        first_at=moment(first_at),
        last_at=moment(last_at),
    )
