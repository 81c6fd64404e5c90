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
    """The file, with its errors in the words of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, work: Work[T]) -> T:
        with in_our_words():
            return await self._database.write(work)

    async def read(self, work: Work[T]) -> T:
        with in_our_words():
            return await self._database.read(work)


@contextmanager
def in_our_words() -> Iterator[None]:
    """Whatever the file cannot do now, the store cannot."""
    try:
        yield
    except StoreUnavailable:
        raise
    except Unavailable as error:
        raise StoreUnavailable(error.name, error.why) from error


def as_json(values: Iterable[str]) -> str:
    """A list as SQL takes it here: `IN (SELECT value FROM json_each(…))`."""
    return msgspec.json.encode(list(values)).decode()
