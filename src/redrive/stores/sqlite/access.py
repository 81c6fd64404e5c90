"""The SQLite file as a store sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from redrive.drivers.sqlite.database import Database, Work, clauses
from redrive.errors import StoreUnavailable, Unavailable
from redrive.forensics.query import Query
from redrive.stores.scoped import within

T = TypeVar("T")
_SQL = clauses(__package__, "letters")


class Access:
    """The file, with its errors as StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, work: Work[T]) -> T:
        with translated_errors():
            return await self._database.write(work)

    async def read(self, work: Work[T], *, is_search: bool = False) -> T:
        with translated_errors():
            return await self._database.read(work, is_search=is_search)

    async def within(self, query: Query) -> Query:
        """The query with its scope as sources and tenants."""
        return await within(query, partial(self._names, "sources"), partial(self._names, "tenants"))

    async def _names(self, kind: str) -> list[str]:
        rows = await self.read(lambda connection: connection.execute(_SQL[kind]).fetchall())
        return [name for (name,) in rows]


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise StoreUnavailable for whatever the file cannot do now."""
    try:
        yield
    except StoreUnavailable:
        raise
    except Unavailable as error:
        raise StoreUnavailable(error.name, error.why) from error


def as_json(values: Iterable[str]) -> str:
    """A list as SQL takes it here: `IN (SELECT value FROM json_each(…))`."""
    return msgspec.json.encode(list(values)).decode()
