"""The SQLite file as a store sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from redrive.drivers.sqlite.database import Database, Work
from redrive.errors import StoreUnavailable, Unavailable

T = TypeVar("T")


class Access:
    """The file, with its errors as StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, work: Work[T]) -> T:
        with translated_errors():
            return await self._database.write(work)

    async def read(self, work: Work[T]) -> T:
        with translated_errors():
            return await self._database.read(work)


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
