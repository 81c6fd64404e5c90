"""The SQLite file as a store sees it."""

from __future__ import annotations

import sqlite3
import threading
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
        self._known = threading.local()

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
        return await self.read(lambda connection: self._names_by(connection, kind))

    def _names_by(self, connection: sqlite3.Connection, kind: str) -> list[str]:
        """The names that letters have, listed anew only if somebody has written since this thread listed them.

        Each thread that reads has a connection of its own, which never writes. To such a one `data_version` is another
        number after any commit: of our writer, of other processes, of anybody. It is read first in the transaction, so
        it belongs to the snapshot that is listed: what was committed before the question is in its answer.
        """
        (now,) = connection.execute("PRAGMA data_version").fetchone()
        lists: dict[str, tuple[int, list[str]]] = self._known.__dict__
        if kind not in lists or lists[kind][0] != now:
            lists[kind] = now, [name for (name,) in connection.execute(_SQL[kind])]
        return lists[kind][1]


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
