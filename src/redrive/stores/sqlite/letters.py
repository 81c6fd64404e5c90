"""Letters in a table: what is searched has a column, the rest is in the store's shape."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.clock import microseconds, moment
from redrive.drivers.sqlite.database import clauses
from redrive.forensics.query import Query
from redrive.forensics.series import buried, resolved
from redrive.model import (
    Category,
    Letter,
    LetterId,
    Owner,
    Revision,
    State,
    claimed,
    edited,
    is_anothers,
    rejoined,
    set_apart,
    version_of,
)
from redrive.stores.base import AT_REST, MAY_BECOME, Cursor, Group, GroupOrder, Hit, Page, Tally, sorted_groups
from redrive.stores.rounds import by_id, rounds
from redrive.stores.scoped import groups_within
from redrive.stores.shape import Shape, decoded, encoded
from redrive.stores.sqlite.access import Access, as_json
from redrive.stores.sqlite.query import cursor_of, has_trigram, is_counted, is_indexed, ordered, where
from redrive.stores.sqlite.series import count, tenants_of
from redrive.stores.sqlite.texts import Texts
from redrive.stores.sqlite.versions import version_row

_SQL = clauses(__package__, "letters")
_ON_THEIR_WAY = (State.RETRYING, State.REPLAYING)
_STATES = {str(state): state for state in State}  # a lookup: to call an enumeration costs four times that
_COLUMNS = (
    "seq, created_at, state, updated_at, next_retry_at, expires_at, owner, lease_until, retries, resends, replay, "
    "archived_from, body, document"
)


class SqliteLetters:
    """Keeps letters in a table, with what is searched in columns and the rest in the store's shape."""

    def __init__(self, access: Access, shape: Shape) -> None:
        self._access = access
        self._shape = shape
        self.texts = Texts(access, self)

    async def record(self, letters: Sequence[Letter]) -> None:
        """Record in one transaction: as a rule all are new. Those that are known rejoin theirs, one by one."""
        batches = [(some, [self._row(letter) for letter in some]) for some in rounds(letters, by_id)]

        def work(connection: sqlite3.Connection) -> None:
            for some, rows in batches:
                self._record(connection, some, rows)

        await self._access.write(work)

    async def get(self, id: LetterId) -> Letter | None:
        return await self._access.read(lambda connection: self._get(connection, id))

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        query = await self.texts.plain(query)
        if query.text:
            seqs, behind = await self.texts.look(query, after, limit, oldest_first)
            letters, _ = await self._read(_in_order(_LISTED, oldest_first), {"seqs": as_json(map(str, seqs))})
            return Page(letters, behind)
        select, parameters = ordered(query, after, limit, oldest_first)
        statement = _in_order(f"SELECT seq FROM ({select})", oldest_first)  # noqa: S608
        letters, last = await self._read(statement, parameters, is_search=not is_indexed(query))
        return Page(letters, last if len(letters) == limit else None)

    async def _read(
        self, statement: str, parameters: dict[str, Any], *, is_search: bool = False
    ) -> tuple[tuple[Letter, ...], Cursor | None]:
        """The letters of a select, and the place of the last."""
        rows = await self._access.read(
            lambda connection: connection.execute(statement, parameters).fetchall(), is_search=is_search
        )
        return tuple(self._letter(row) for row in rows), cursor_of(rows[-1][1], rows[-1][0]) if rows else None

    async def count(self, query: Query) -> int:
        query = await self.texts.plain(query)
        if query.text and has_trigram(query.text) and query == Query(text=query.text):
            return await self.texts.count(query.text)

        def work(connection: sqlite3.Connection) -> int:
            asked = _without_all_transports(connection, query)
            condition, parameters = where(asked)
            statement = _SQL["count_tallies" if is_counted(asked) else "count"].replace("{where}", condition)
            return int(connection.execute(statement, parameters).fetchone()[0])

        return await self._access.read(work, is_search=not is_counted(query))

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        if query.scope is not None:
            query = await self.texts.plain(query)
            return await groups_within(self, query, limit=limit, skip=skip, order=order)
        query = await self.texts.plain(query)
        condition, parameters = where(query)
        counted = is_counted(query)
        statement = _SQL["groups" if counted else "groups_scan"].replace("{where}", condition)
        statement = statement.replace("{order}", _GROUP_ORDERS[order])
        parameters |= {"limit": limit, "skip": skip}

        def work(connection: sqlite3.Connection) -> list[Group]:
            found = sorted_groups(_groups(connection.execute(statement, parameters).fetchall()), order)
            page = found if counted else found[skip : skip + limit]
            return [self._with_versions(connection, group) for group in page]

        return await self._access.read(work, is_search=not is_counted(query))

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        return await self._access.read(lambda connection: tenants_of(connection, groups, most))

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        query = await self.texts.plain(query or Query())
        condition, parameters = where(query)
        statement = _SQL["tallies" if is_counted(query) else "tallies_scan"].replace("{where}", condition)
        rows = await self._access.read(
            lambda connection: connection.execute(statement, parameters).fetchall(), is_search=not is_counted(query)
        )
        return [Tally(source, State(state), Category(category), count) for source, state, category, count in rows]

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
        query = await self.texts.plain(query)
        state = {"from": as_json(MAY_BECOME[to]), "to": to, "me": owner}

        def work(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            rows = _claimable(connection, query, state, limit)
            update = {"to": to, "me": owner, "until": microseconds(until), "now": microseconds(now), "replay": replay}
            connection.execute(_SQL["claim"], {**update, "seqs": msgspec.json.encode([row[0] for row in rows])})
            return rows

        rows = await self._access.write(work)  # read here, while the writer goes on
        return [claimed(self._letter(row), to, owner, now, until, replay) for row in rows]

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
            "ids": as_json(ids),
            "expect": as_json(expect),
            "to": to,
            "now": microseconds(now),
            "owner": owner,
        }
        statement = _SQL["confirm" if to in _ON_THEIR_WAY and set(expect) == {to} else "move"]
        counts = to is State.RESOLVED and State.RESOLVED not in expect

        def work(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
            rows = connection.execute(statement, parameters).fetchall()
            if counts:
                count(connection, resolved([(source, category) for _, source, category in rows], now))
            return rows

        return [id for id, _, _ in await self._access.write(work)]

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        query = await self.texts.plain(query)
        states = AT_REST if query.states is None else tuple(state for state in query.states if state in AT_REST)
        select, parameters = ordered(replace(query, states=states), None, limit, oldest_first=True)
        statement = _SQL["prune"].replace("{seqs}", f"SELECT seq FROM ({select})")  # noqa: S608
        rows = await self._access.write(lambda connection: connection.execute(statement, parameters).fetchall())
        return [id for (id,) in rows]

    def _record(
        self, connection: sqlite3.Connection, letters: Sequence[Letter], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        (before,) = connection.execute(_SQL["last"]).fetchone()
        fresh = connection.executemany(_SQL["insert"], rows).rowcount
        connection.execute(_SQL["unsearched"], (before,))
        known = self._known(connection, letters, before) if fresh < len(rows) else frozenset()
        new = [letter for letter in letters if letter.id not in known] if known else letters
        apart, joined = (
            self._rejoin(connection, [letter for letter in letters if letter.id in known]) if known else ([], [])
        )
        fresh_rows = [row for row in rows if row[0] not in known] if known else rows
        connection.executemany(_SQL["count_new"], [(*kind, n) for kind, n in Counter(map(_kind, fresh_rows)).items()])
        connection.executemany(_SQL["add_group"], _group_rows([*new, *joined]))
        connection.executemany(_SQL["depend"], [(letter.id, id) for letter in new for id in letter.depends_on])
        count(connection, buried(new, joined), Counter(map(_hit, fresh_rows)))
        if apart:
            self._record(connection, apart, [self._row(letter) for letter in apart])

    def _known(self, connection: sqlite3.Connection, letters: Sequence[Letter], before: int) -> Collection[LetterId]:
        """The letters that were there before this batch."""
        ids = as_json(letter.id for letter in letters)
        return {id for (id,) in connection.execute(_SQL["known"], {"ids": ids, "before": before})}

    def _rejoin(self, connection: sqlite3.Connection, letters: Sequence[Letter]) -> tuple[list[Letter], list[Letter]]:
        """Join the letters to the known ones; returns those of other tenants, which are to be recorded apart, and the
        known ones of which something was new."""
        apart, joined = list[Letter](), list[Letter]()
        for letter in letters:
            old = self._get(connection, letter.id)
            assert old is not None
            if is_anothers(old, letter):
                apart.append(set_apart(letter))
            elif (new := rejoined(old, letter)) is not None:
                self._write_over(connection, old, new)
                joined.append(new)
        return apart, joined

    def change(self, connection: sqlite3.Connection, revision: Revision) -> bool:
        """Edit a letter, within a transaction; returns whether it was as expected."""
        old = self._get(connection, revision.letter)
        new = None if old is None else edited(old, revision)
        if old is not None and new is not None:
            self._write_over(connection, old, new)
        return new is not None

    def _write_over(self, connection: sqlite3.Connection, old: Letter, new: Letter) -> None:
        if new.version > old.version:
            connection.execute(_SQL["keep_version"], version_row(version_of(old)))
        connection.execute(_SQL["rejoin"], dict(zip(_INSERTED, self._row(new), strict=True)))
        if new.depends_on != old.depends_on:
            connection.execute(_SQL["depend_no_more"], (new.id,))
            connection.executemany(_SQL["depend"], [(new.id, id) for id in new.depends_on])

    def unsearched(self, connection: sqlite3.Connection, limit: int) -> list[tuple[int, int, Letter]]:
        """Letters whose text is still to be made, with their seqs and marks."""
        rows = connection.execute(_UNSEARCHED, {"limit": limit}).fetchall()
        return [(row[1], row[0], self._letter(row[1:])) for row in rows]

    def _get(self, connection: sqlite3.Connection, id: LetterId) -> Letter | None:
        row = connection.execute(_SQL["get"].replace("{columns}", _COLUMNS), {"id": id}).fetchone()
        return None if row is None else self._letter(row)

    def _row(self, letter: Letter) -> tuple[Any, ...]:
        message, last = letter.message, letter.failures[-1]
        # the body has a column of its own, so that it can be searched; it is not written twice
        document = encoded(self._shape, replace(letter, message=replace(message, body=b"")))
        return (
            letter.id,
            str(letter.state),  # plain text: SQLite's driver asks each other kind of text how it is to be adapted
            str(last.category),
            message.source,
            letter.group,
            microseconds(letter.created_at),
            microseconds(letter.updated_at),
            _micros(letter.next_retry_at),
            _micros(letter.expires_at),
            message.priority,
            letter.owner,
            _micros(letter.lease_until),
            letter.transport,
            message.tenant,
            message.id,
            last.type,
            last.message,
            last.code,
            message.key,
            message.correlation_id,
            letter.retries,
            letter.resends,
            letter.replay,
            letter.archived_from and str(letter.archived_from),
            message.body,
            document,
        )

    def _with_versions(self, connection: sqlite3.Connection, group: Group) -> Group:
        """The group with the versions in its oldest and its newest letter."""
        ends = [connection.execute(statement, {"id": group.id}).fetchone() for statement in _GROUP_ENDS]
        if None in ends:
            return group  # it has no letter any more
        oldest, newest = [decoded(self._shape, document) for (document,) in ends]
        return replace(group, first_version=oldest.failures[0].version, last_version=newest.last.version)

    def _letter(self, row: tuple[Any, ...]) -> Letter:
        """The letter of a row: what the shape loads, and over it what changed since."""
        (
            _,
            _,
            state,
            updated_at,
            next_retry_at,
            expires_at,
            owner,
            lease_until,
            retries,
            resends,
            replay,
            archived_from,
            body,
            document,
        ) = row
        letter = decoded(self._shape, document)
        return replace(
            letter,
            message=replace(letter.message, body=body),
            state=_STATES[state],
            updated_at=moment(updated_at),
            next_retry_at=None if next_retry_at is None else moment(next_retry_at),
            expires_at=None if expires_at is None else moment(expires_at),
            owner=owner,
            lease_until=None if lease_until is None else moment(lease_until),
            retries=retries,
            resends=resends,
            replay=replay,
            archived_from=archived_from and State(archived_from),
        )


_INSERTED = [
    "id",
    "state",
    "category",
    "source",
    "group_id",
    "created_at",
    "updated_at",
    "next_retry_at",
    "expires_at",
    "priority",
    "owner",
    "lease_until",
    "transport",
    "tenant",
    "message_id",
    "error_type",
    "error_message",
    "code",
    "key",
    "correlation_id",
    "retries",
    "resends",
    "replay",
    "archived_from",
    "body",
    "document",
]


_kind = itemgetter(*map(_INSERTED.index, ("group_id", "source", "state", "category")))
"""What a row is counted by; plain texts of a row are hashed in a tenth of the time that enumerations take."""
_hit = itemgetter(*map(_INSERTED.index, ("group_id", "tenant")))
_LISTED = "SELECT CAST(value AS INTEGER) FROM json_each(:seqs)"
_UNSEARCHED = clauses(__package__, "texts")["unsearched"].replace("{columns}", _COLUMNS)
_GROUP_ORDERS = {
    GroupOrder.LETTERS: "sum(count)",
    GroupOrder.LAST_SEEN: "(SELECT last_at FROM groups WHERE id = group_id)",
    GroupOrder.FIRST_SEEN: "(SELECT first_at FROM groups WHERE id = group_id)",
}
_GROUP_ENDS = [_SQL["group_end"].replace("{way}", way) for way in ("ASC", "DESC")]


def _without_all_transports(connection: sqlite3.Connection, query: Query) -> Query:
    """The query without its transports, if there are letters of no others: that one the counters can answer."""
    rest = replace(query, transports=None)
    if query.transports is None or not is_counted(rest):
        return query
    used = {name for (name,) in connection.execute(_SQL["transports"])}
    return rest if used <= set(query.transports) else query


def _claimable(
    connection: sqlite3.Connection, query: Query, state: dict[str, Any], limit: int
) -> list[tuple[Any, ...]]:
    """Letters that may be claimed, the most urgent first. Of what is due, only as much is read as is taken."""
    condition, parameters = where(query)
    if query.due is None or query.sources is None:
        select = _SQL["claimable"].replace("{where}", condition).replace("{columns}", _COLUMNS)
        return connection.execute(select, {**parameters, **state, "limit": limit}).fetchall()
    one_of = "source = :only_source AND priority = :only_priority"
    select = _SQL["claimable"].replace("{where}", f"{one_of} AND {condition}").replace("{columns}", _COLUMNS)
    urgent = [
        (priority, source)
        for source in query.sources
        for (priority,) in connection.execute(_SQL["due"], {"only_source": source}).fetchall()
    ]
    rows: list[tuple[Any, ...]] = []
    for priority, source in sorted(urgent):
        only = {"only_source": source, "only_priority": priority, "limit": limit - len(rows)}
        rows += connection.execute(select, {**parameters, **state, **only})
    return rows


def _in_order(seqs: str, oldest_first: bool) -> str:
    """The letters of these seqs."""
    way = "ASC" if oldest_first else "DESC"
    return f"SELECT {_COLUMNS} FROM letters WHERE seq IN ({seqs}) ORDER BY created_at {way}, seq {way}"  # noqa: S608


def _groups(rows: Iterable[tuple[Any, ...]]) -> Iterator[Group]:
    """Rows of (group…, state, count, sources) as groups."""
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return map(_group, found.values())


def _group(rows: Sequence[tuple[Any, ...]]) -> Group:
    id, error_type, message, category, first_at, last_at, *_ = rows[0]
    sources = {source for row in rows for source in msgspec.json.decode(row[8])}
    states = {State(row[6]): row[7] for row in rows}
    return Group(
        id=id,
        count=sum(states.values()),
        error_type=error_type,
        message=message,
        category=Category(category),
        sources=tuple(sorted(sources)),
        states=states,
        first_at=moment(first_at),
        last_at=moment(last_at),
    )


def _group_rows(letters: Sequence[Letter]) -> list[tuple[Any, ...]]:
    """A row for each group among the letters: its last failure, and when the first and the last of it came."""
    lasts: dict[str, Letter] = {}
    firsts: dict[str, datetime] = {}
    ends: dict[str, datetime] = {}
    for letter in letters:
        group, at = letter.group, letter.updated_at
        lasts[group] = letter
        if at < firsts.setdefault(group, at):
            firsts[group] = at
        if at > ends.setdefault(group, at):
            ends[group] = at
    return [_group_row(letter, firsts[group], ends[group]) for group, letter in lasts.items()]


def _group_row(letter: Letter, first_at: datetime, last_at: datetime) -> tuple[Any, ...]:
    last = letter.last
    return letter.group, last.type, last.message, str(last.category), microseconds(first_at), microseconds(last_at)


def _micros(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)
