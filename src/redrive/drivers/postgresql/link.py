"""Connections to one database: for the store and for the queue, each with its own migrations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg

from redrive.drivers.postgresql.address import address_of
from redrive.drivers.postgresql.errors import AGAIN, GONE, state_of, translated
from redrive.drivers.postgresql.migrations import Migrations
from redrive.drivers.postgresql.pool import Connection, Pool
from redrive.drivers.postgresql.statements import statement
from redrive.drivers.postgresql.trust import Doubt, Facts, doubts, facts, obstacles, weaknesses
from redrive.errors import ConfigError, Unavailable

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], Awaitable[T]]
Parameters: TypeAlias = Mapping[str, Any] | Sequence[Any]
_MOST_TRIES = 8
_MIGRATING = 3600.0  # seconds


class Link:
    """A database. Whatever goes wrong is raised as `unavailable`, and what is set up wrongly as ConfigError.

    Nothing is kept in a session, so PgBouncer may be in between (transaction mode): tables are named with their schema,
    locks end with their transaction, statements are not prepared unless the URL says so. What is run in a transaction
    that PostgreSQL rolled back for a deadlock or a serialization failure is run again; nothing else is.
    """

    def __init__(self, url: str, *, migrations: Migrations, unavailable: type[Unavailable] = Unavailable) -> None:
        self.address = address_of(url)
        self.migrations = migrations
        self._unavailable = unavailable
        self._pool = Pool(self._connect, self.address.pool_size)
        self._opening = asyncio.Lock()
        self._is_ready = False
        self._was_ready = False

    @property
    def schema(self) -> str:
        return self.address.schema

    def sql(self, package: str, name: str) -> str:
        """The statement of that package's sql/NAME.sql, in our schema."""
        return statement(package, name, self.schema)

    async def run(self, work: Work[T], *, patience: float | None = None) -> T:
        """Run it in one transaction, durable when it returns. It may be called again: it has no effects elsewhere."""

        async def transaction(connection: Connection) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._tried(transaction, patience)

    async def fetch(
        self, query: str, parameters: Parameters = (), *, patience: float | None = None
    ) -> list[tuple[Any, ...]]:
        """Run one statement, a transaction of its own in one round trip; returns its rows, bytes as they are."""

        async def execute(connection: Connection) -> list[tuple[Any, ...]]:
            return await rows(connection, query, parameters)

        return await self._tried(execute, patience)

    async def on_connection(self, work: Work[T]) -> T:
        """Run it on a connection in autocommit. Like what `run` is given, it may be called again."""
        return await self._tried(work, None)

    @asynccontextmanager
    async def connection(self, *, patience: float | None = None) -> AsyncIterator[Connection]:
        """A connection of the pool, in autocommit, after the migrations; errors in the block are translated."""
        with translated(self.address.shown, self._unavailable):
            await self._make_ready()
            async with self._pool.connection() as connection, asyncio.timeout(patience or self.address.patience):
                yield connection

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """A connection of its own that keeps its session, as LISTEN needs: past PgBouncer, where the URL says `direct`.
        Raises `unavailable` if there is no such way (`direct=off`)."""
        if self.address.direct is None:
            raise self._unavailable(self.address.shown, "its URL says direct=off: there is no session")
        with translated(self.address.shown, self._unavailable):
            connection = await self._connect(self.address.direct)
            try:
                yield connection
            finally:
                await connection.close()

    def pool(self, size: int) -> Pool:
        """More connections of its own, for transactions that last as long as somebody else's code runs."""
        return Pool(self._connect, size)

    async def facts(self) -> Facts:
        """What the server says of itself. Makes no tables."""
        with translated(self.address.shown, self._unavailable):
            async with self._pool.connection() as connection, asyncio.timeout(self.address.patience):
                return await facts(connection, self.schema)

    async def doubts(self) -> list[Doubt]:
        """All that is wrong with the server, whether or not we would run on it. Makes no tables."""
        known = await self.facts()
        return [*doubts(known), *obstacles(known, self.schema), *weaknesses(known, self.address.pool_size)]

    async def check(self) -> bool:
        """Raise if we could not write; returns whether our tables are there and up to date. Makes none."""
        for doubt in obstacles(await self.facts(), self.schema):
            raise self._unavailable(self.address.shown, f"it {doubt.text}: {doubt.mend}")
        with translated(self.address.shown, self._unavailable):
            async with self._pool.connection() as connection, asyncio.timeout(self.address.patience):
                await self._trust(connection)
        return await self.version() == self.migrations.version

    async def version(self) -> int:
        """The version of our tables that is there; 0: none. Makes none."""
        with translated(self.address.shown, self._unavailable):
            async with self._pool.connection() as connection, asyncio.timeout(self.address.patience):
                return await self.migrations.found(connection, self.schema)

    async def aclose(self) -> None:
        """Close every connection; harmless when done twice."""
        await self._pool.aclose()

    async def _tried(self, work: Work[T], patience: float | None) -> T:
        for attempt in range(1, _MOST_TRIES + 1):
            try:
                async with self.connection(patience=patience) as connection:
                    return await work(connection)
            except self._unavailable as error:
                state = state_of(error.__cause__) if error.__cause__ else ""
                self._is_ready = self._is_ready and state not in GONE
                if state not in AGAIN or attempt == _MOST_TRIES:
                    raise
            await asyncio.sleep(0.002 * 2**attempt)
        raise AssertionError("the last try returns or raises")

    async def _make_ready(self) -> None:
        """Look at the server and at our tables, once."""
        if self._is_ready:
            return
        async with self._opening:
            if self._is_ready:
                return
            async with self._pool.connection() as connection, asyncio.timeout(_MIGRATING):
                await self._trust(connection)
                await self.migrations.bring_up_to_date(connection, self.schema)
            self._is_ready = self._was_ready = True

    async def _trust(self, connection: Connection) -> None:
        """Raise ConfigError if the server is set up so that it can lose messages, or is not ours to write to."""
        if not self.address.checks:
            return
        for doubt in doubts(await facts(connection, self.schema)):
            why = f"{doubt.text}: {doubt.mend} (to run on it all the same, add `checks=off` to its URL)"
            shown = self.address.shown
            raise self._unavailable(shown, f"it {why}") if self._was_ready else ConfigError(f"{shown} {why}")

    async def _connect(self, parameters: Mapping[str, Any] | None = None) -> Connection:
        made: Connection = await psycopg.AsyncConnection.connect(
            **(parameters or self.address.parameters),
            autocommit=True,
            prepare_threshold=5 if self.address.prepare else None,
        )
        return made


async def rows(connection: Connection, query: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
    """Run a statement; its rows, if it has some. Values come in binary: a body of 10 MB is not written in hex."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(query.encode(), parameters or None)
        return await cursor.fetchall() if cursor.description is not None else []


async def copy(connection: Connection, query: str, types: Sequence[str], values: Iterable[Sequence[Any]]) -> None:
    """COPY rows in, in binary. They may be made as they are sent: the server works on one while the next is made."""
    async with copying(connection, query) as into:
        into.set_types(types)
        for row in values:
            await into.write_row(row)


@asynccontextmanager
async def copying(connection: Connection, query: str) -> AsyncIterator[Any]:
    """A COPY, for what is written in the block."""
    try:
        async with connection.cursor().copy(query.encode()) as into:
            yield into
    except ValueError as error:
        if "values to unpack" not in str(error):
            raise
        # psycopg 3.3 expects one answer at the end, and a server that is killed gives two
        raise psycopg.OperationalError("the connection was cut off in a COPY") from error
