"""The ledger in a table."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from redrive.clock import microseconds, moment
from redrive.drivers.sqlite.database import clauses
from redrive.forensics.query import Query
from redrive.model import LetterId
from redrive.stores.base import Cursor, Entry, EntryStatus, number_in
from redrive.stores.sqlite.access import Access, as_json
from redrive.stores.sqlite.letters import SqliteLetters
from redrive.stores.sqlite.query import arms, numbered

_SQL = clauses(__package__, "letters")
_STATUS = {str(status): status for status in EntryStatus}


class SqliteLedger:
    """Keeps the lines of every replay."""

    def __init__(self, access: Access, letters: SqliteLetters) -> None:
        self._access = access
        self._letters = letters

    async def freeze(self, replay: str, query: Query, *, now: datetime) -> int:
        """Freeze in one statement: a million letters, and none of them passes through this process."""
        query = await self._letters.texts.plain(query)
        conditions = [numbered(*arm, number) for number, arm in enumerate(arms(query))] or [("0", {})]
        letters = " UNION ALL ".join(_SQL["freeze_arm"].replace("{where}", condition) for condition, _ in conditions)
        statement = _SQL["freeze"].replace("{letters}", letters)
        parameters: dict[str, Any] = {"replay": replay, "now": microseconds(now)}
        for _, more in conditions:
            parameters |= more

        def work(connection: sqlite3.Connection) -> int:
            if connection.execute(_SQL["note_frozen"], (replay,)).rowcount:
                connection.execute(statement, parameters)
            row = connection.execute("SELECT count(*) FROM ledger WHERE replay = ?", (replay,)).fetchone()
            return int(row[0])

        return await self._access.write(work)

    async def entries(
        self, replay: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 500
    ) -> tuple[Sequence[Entry], Cursor | None]:
        condition = "replay = :replay AND seq > :after" + (" AND status = :status" if status else "")
        statement = f"SELECT seq, letter_id, status, at, note FROM ledger WHERE {condition} ORDER BY seq LIMIT :limit"  # noqa: S608
        parameters = {"replay": replay, "after": number_in(after), "status": status, "limit": limit}
        rows = await self._access.read(lambda connection: connection.execute(statement, parameters).fetchall())
        entries = [Entry(replay, letter, _STATUS[status], moment(at), note) for _, letter, status, at, note in rows]
        return entries, str(rows[-1][0]) if len(rows) == limit else None

    async def of_letter(self, letter: LetterId, replays: Sequence[str]) -> Sequence[Entry]:
        asked = {"letter": letter, "replays": as_json(replays)}
        rows = await self._access.read(lambda connection: connection.execute(_SQL["of_letter"], asked).fetchall())
        found = {
            replay: Entry(replay, letter, EntryStatus(status), moment(at), note) for replay, status, at, note in rows
        }
        return [found[replay] for replay in replays if replay in found]

    async def mark(self, entries: Iterable[Entry]) -> None:
        """In one transaction: those that were sent just now as one statement for each note, the others one by one."""
        sent: dict[tuple[str, datetime, str], list[str]] = defaultdict(list)
        rows = []
        for entry in entries:
            if entry.status is EntryStatus.SENT:
                sent[entry.replay, entry.at, entry.note].append(entry.letter)
            else:
                rows.append((entry.replay, entry.letter, str(entry.status), microseconds(entry.at), entry.note))

        def work(connection: sqlite3.Connection) -> None:
            for (replay, at, note), ids in sent.items():
                many = {"replay": replay, "at": microseconds(at), "note": note, "letters": as_json(ids)}
                connection.execute(_SQL["mark_sent"], many)
            connection.executemany(_SQL["mark"], rows)

        await self._access.write(work)

    async def tally(self, replay: str) -> dict[EntryStatus, int]:
        statement = "SELECT status, count(*) FROM ledger WHERE replay = ? GROUP BY status"
        rows = await self._access.read(lambda connection: connection.execute(statement, (replay,)).fetchall())
        return {EntryStatus(status): count for status, count in rows}
