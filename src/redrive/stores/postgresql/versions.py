"""The versions of letters' messages in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redrive.drivers.postgresql.pool import Connection
from redrive.model import LetterId, Revision, Version
from redrive.stores.postgresql.access import Access
from redrive.stores.postgresql.codec import clean
from redrive.stores.versions import facts_of, version_in

if TYPE_CHECKING:
    from redrive.stores.postgresql.letters import PostgresLetters


class PostgresVersions:
    """Keeps the messages of letters as they were. An edit is one transaction; what a letter had goes with it."""

    def __init__(self, access: Access, letters: PostgresLetters) -> None:
        self._access = access
        self._letters = letters

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        return await self._letters.edit(revisions)

    async def list(self, letter: LetterId) -> Sequence[Version]:
        found = await self._access.fetch(self._access.sql("versions"), {"letter": clean(letter)})
        return [version_in(facts) for (facts,) in found]

    async def get(self, letter: LetterId, number: int) -> Version | None:
        named = {"letter": clean(letter), "number": number}
        found = await self._access.fetch(self._access.sql("version"), named)
        return version_in(*found[0]) if found else None

    async def keep(self, versions: Sequence[Version]) -> None:
        statement = self._access.sql("adopt_version").encode()

        async def work(connection: Connection) -> None:
            await connection.cursor().executemany(statement, [version_row(version) for version in versions])

        if versions:
            await self._access.run(work)


def version_row(version: Version) -> dict[str, Any]:
    """The parameters of a version."""
    named = {"letter": clean(version.letter), "number": version.number}
    return {**named, "facts": facts_of(version), "body": version.body}
