"""The versions of letters' messages in a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive.drivers.sqlite.database import clauses
from redrive.model import LetterId, Revision, Version
from redrive.stores.sqlite.access import Access
from redrive.stores.versions import facts_of, version_in

if TYPE_CHECKING:
    from redrive.stores.sqlite.letters import SqliteLetters

_SQL = clauses(__package__, "letters")


class SqliteVersions:
    """Keeps the messages of letters as they were. An edit is one transaction; what a letter had goes with it."""

    def __init__(self, access: Access, letters: SqliteLetters) -> None:
        self._access = access
        self._letters = letters

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        change = self._letters.change

        def work(connection: sqlite3.Connection) -> list[LetterId]:
            return [revision.letter for revision in revisions if change(connection, revision)]

        return await self._access.write(work)

    async def list(self, letter: LetterId) -> Sequence[Version]:
        rows = await self._access.read(lambda connection: connection.execute(_SQL["versions"], (letter,)).fetchall())
        return [version_in(facts) for (facts,) in rows]

    async def get(self, letter: LetterId, number: int) -> Version | None:
        named = (letter, number)
        row = await self._access.read(lambda connection: connection.execute(_SQL["version"], named).fetchone())
        return None if row is None else version_in(*row)

    async def keep(self, versions: Sequence[Version]) -> None:
        names = ("letter", "number", "facts", "body")
        rows = [dict(zip(names, version_row(version), strict=True)) for version in versions]
        await self._access.write(lambda connection: connection.executemany(_SQL["adopt_version"], rows).rowcount)


def version_row(version: Version) -> tuple[LetterId, int, bytes, bytes]:
    """The values of a version: letter, number, facts, body."""
    return version.letter, version.number, facts_of(version), version.body
