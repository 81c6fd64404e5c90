"""The database as a store sees it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from redrive.drivers.postgresql.link import Link, Work
from redrive.drivers.postgresql.migrations import Migrations
from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.stores.postgresql.codec import unclean
from redrive.stores.scoped import within

T = TypeVar("T")
_HERE = "redrive.stores.postgresql"
_MOST_RACES = 20
TABLES = Migrations("store", _HERE)


class Access:
    """The database, with its errors as StoreUnavailable."""

    def __init__(self, url: str) -> None:
        self.link = Link(url, migrations=TABLES, unavailable=StoreUnavailable)

    @property
    def schema(self) -> str:
        return self.link.schema

    def sql(self, name: str, **parts: str) -> str:
        """The statement of sql/NAME.sql, its `{parts}` filled in."""
        statement = self.link.sql(_HERE, name)
        for part, text in parts.items():
            statement = statement.replace(f"{{{part}}}", text)
        return statement.replace("{schema}", self.schema)  # which a part may name, too

    async def run(self, work: Work[T]) -> T:
        return await self.link.run(work)

    async def run_again(self, work: Work[T], on: type[Exception]) -> T:
        """Run it until it is not overtaken by another process; what it did till then was rolled back."""
        for _ in range(_MOST_RACES):
            try:
                return await self.run(work)
            except on:
                continue
        raise StoreUnavailable(self.link.address.shown, "others write the same letters all the time: try again")

    async def fetch(
        self, statement: str, parameters: Mapping[str, Any], *, patience: float | None = None
    ) -> list[tuple[Any, ...]]:
        return await self.link.fetch(statement, parameters, patience=patience)

    async def within(self, query: Query) -> Query:
        """The query with its scope as sources and tenants."""
        return await within(query, partial(self._names, "sources"), partial(self._names, "tenants"))

    async def _names(self, kind: str) -> list[str]:
        return [unclean(name) for (name,) in await self.fetch(self.sql(kind), {})]
