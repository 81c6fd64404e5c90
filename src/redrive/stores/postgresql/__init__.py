"""Letters, ledger and documents in PostgreSQL: `postgresql://user:password@host/database?schema=redrive`."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.forensics.searchable import Searchable
from redrive.stores.base import Doubt, StoreFeatures
from redrive.stores.postgresql.access import Access
from redrive.stores.postgresql.documents import PostgresDocuments
from redrive.stores.postgresql.ledger import PostgresLedger
from redrive.stores.postgresql.letters import PostgresLetters
from redrive.stores.postgresql.series import PostgresSeries
from redrive.stores.postgresql.texts import NO_INDEX
from redrive.stores.postgresql.versions import PostgresVersions
from redrive.stores.shape import NATIVE, Shape


class PostgresStore:
    """Every claim and move is one transaction, so any number of processes may share the database.

    Nothing connects before the first call; that one makes the tables, or brings them up to date.
    """

    features = StoreFeatures(
        durable=True,
        atomic_claims=True,
        shared=True,
        counted_groups=True,
        counted_exactly=True,
        indexed_texts=True,
    )

    def __init__(self, url: str, *, shape: Shape = NATIVE) -> None:
        self.url = url
        self._access = Access(url)
        self.series = PostgresSeries(self._access)
        self.letters = PostgresLetters(self._access, shape, self.series)
        self.versions = PostgresVersions(self._access, self.letters)
        self.ledger = PostgresLedger(self._access, self.letters)
        self.documents = PostgresDocuments(self._access)

    def search_as(self, searchable: Searchable) -> None:
        self.letters.texts.search_as(searchable)

    async def index_texts(self, most: int) -> int:
        if most:
            await self.letters.texts.make_index()
        return await self.letters.texts.index(most)

    async def check(self) -> None:
        """Check by writing: a read can succeed where a full disk or a standby would not. Makes no tables: where there
        are none yet, or older ones, it checks that we may make them."""
        if await self._access.link.check():
            await self.documents.put("", "check", {})

    async def is_made(self) -> bool:
        """Whether our tables are there."""
        return await self._access.link.version() > 0

    async def doubts(self) -> Sequence[Doubt]:
        """What is wrong with the server, for `redrive doctor`."""
        found = await self._access.link.doubts()
        if await self.is_made() and not await self.letters.texts.has_index():
            found.append(NO_INDEX)
        return found

    async def aclose(self) -> None:
        await self._access.link.aclose()


def open_store(url: str) -> PostgresStore:
    """`postgresql://…`, `postgres://…`."""
    return PostgresStore(url)
