"""The ledger in a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from redrive.clock import microseconds, moment
from redrive.drivers.postgresql.link import rows
from redrive.drivers.postgresql.pool import Connection
from redrive.forensics.query import Query
from redrive.model import LetterId
from redrive.stores.base import Cursor, Entry, EntryStatus, number_in
from redrive.stores.postgresql.access import Access
from redrive.stores.postgresql.codec import clean, unclean
from redrive.stores.postgresql.letters import PostgresLetters
from redrive.stores.postgresql.query import where
from redrive.stores.rounds import rounds

_FREEZING = 3600.0  # seconds: a million letters take ten


class PostgresLedger:
    """Keeps the lines of every replay."""

    def __init__(self, access: Access, letters: PostgresLetters) -> None:
        self._access = access
        self._letters = letters

    async def freeze(self, replay: str, query: Query, *, now: datetime) -> int:
        condition = where(await self._letters.plain(query))
        parameters = {**condition.parameters, "replay": clean(replay), "now": microseconds(now)}

        async def work(connection: Connection) -> int:
            named = {"replay": clean(replay)}
            if await rows(connection, self._access.sql("freeze_once"), named):
                await rows(connection, self._access.sql("freeze", where=condition.sql), parameters)
            [[number]] = await rows(connection, self._access.sql("frozen"), named)
            return int(number)

        return await self._access.link.run(work, patience=_FREEZING)

    async def entries(
        self, replay: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 500
    ) -> tuple[Sequence[Entry], Cursor | None]:
        statement = self._access.sql("entries", status="AND status = %(status)s" if status else "")
        parameters = {"replay": clean(replay), "after": number_in(after), "limit": limit}
        found = await self._access.fetch(statement, {**parameters, **({"status": status.value} if status else {})})
        entries = [
            Entry(replay, unclean(letter), EntryStatus(status), moment(at), unclean(note))
            for _, letter, status, at, note in found
        ]
        return entries, str(found[-1][0]) if len(found) == limit else None

    async def of_letter(self, letter: LetterId, replays: Sequence[str]) -> Sequence[Entry]:
        asked = {"letter": clean(letter), "replays": [clean(replay) for replay in replays]}
        rows = await self._access.fetch(self._access.sql("of_letter"), asked)
        found = {
            unclean(replay): Entry(unclean(replay), letter, EntryStatus(status), moment(at), unclean(note))
            for replay, status, at, note in rows
        }
        return [found[replay] for replay in replays if replay in found]

    async def mark(self, entries: Iterable[Entry]) -> None:
        batches = rounds(list(entries), lambda entry: (entry.replay, entry.letter))

        async def work(connection: Connection) -> None:
            for some in batches:
                columns = {
                    "replays": [clean(entry.replay) for entry in some],
                    "letters": [clean(entry.letter) for entry in some],
                    "statuses": [entry.status.value for entry in some],
                    "times": [microseconds(entry.at) for entry in some],
                    "notes": [clean(entry.note) for entry in some],
                }
                await rows(connection, self._access.sql("mark"), columns)

        if batches:
            await self._access.run(work)

    async def tally(self, replay: str) -> dict[EntryStatus, int]:
        found = await self._access.fetch(self._access.sql("tally"), {"replay": clean(replay)})
        return {EntryStatus(status): count for status, count in found}
