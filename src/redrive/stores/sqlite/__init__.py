"""Letters, ledger and documents in one SQLite file: the embedded default."""

from __future__ import annotations

import asyncio

from redrive.drivers.sqlite.database import close_database, open_database
from redrive.forensics.searchable import Searchable
from redrive.stores.base import StoreFeatures
from redrive.stores.shape import NATIVE, Shape
from redrive.stores.sqlite.access import Access, translated_errors
from redrive.stores.sqlite.documents import SqliteDocuments
from redrive.stores.sqlite.ledger import SqliteLedger
from redrive.stores.sqlite.letters import SqliteLetters
from redrive.stores.sqlite.series import SqliteSeries
from redrive.stores.sqlite.versions import SqliteVersions


class SqliteStore:
    """Every claim and move is one transaction of the file, so any number of processes may share it."""

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
        with translated_errors():
            self._database = open_database(url)
        access = Access(self._database)
        self.letters = SqliteLetters(access, shape)
        self.versions = SqliteVersions(access, self.letters)
        self.ledger = SqliteLedger(access, self.letters)
        self.documents = SqliteDocuments(access)
        self.series = SqliteSeries(access)
        self._access = access
        self._closed = False

    def search_as(self, searchable: Searchable) -> None:
        self.letters.texts.search_as(searchable)

    async def index_texts(self, most: int) -> int:
        return await self.letters.texts.index(most)

    async def pulse(self) -> object:
        with translated_errors():
            return await self._database.pulse()

    async def check(self) -> None:
        """Check by writing: a read can succeed where a full disk or a lock would not."""
        statement = "DELETE FROM documents WHERE kind = ''"
        await self._access.write(lambda connection: connection.execute(statement).rowcount)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(close_database, self._database)


def open_store(url: str) -> SqliteStore:
    """`sqlite:///file.db`."""
    return SqliteStore(url)
