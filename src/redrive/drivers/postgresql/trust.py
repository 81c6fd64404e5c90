"""Whether a server keeps what it is given: the facts it tells, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from msgspec import Struct
from psycopg.rows import dict_row

from redrive.drivers.postgresql.pool import Connection
from redrive.drivers.postgresql.statements import statement

OLDEST = 13


class Facts(Struct, frozen=True):
    """What sql/facts.sql asks."""

    version: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    autovacuum: str
    encoding: str
    max_connections: int
    reserved_connections: int
    connection_limit: int | None
    database_limit: int | None
    read_only: str
    standby: bool
    user: str
    database: str
    may_create_schema: bool
    has_schema: bool
    may_create_tables: bool
    may_use_schema: bool
    closed_tables: int  # how many of the schema's tables we may not write to

    @property
    def connections(self) -> int:
        """How many connections we may have at most."""
        limits = [limit for limit in (self.connection_limit, self.database_limit) if limit is not None and limit >= 0]
        return min(self.max_connections - self.reserved_connections, *limits, self.max_connections)


class Doubt(Struct, frozen=True):
    """What is wrong with a server, and what mends it."""

    text: str
    mend: str
    is_failure: bool = True  # it loses something, or does not work


async def facts(connection: Connection, schema: str) -> Facts:
    """What the server says of itself."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("redrive.drivers.postgresql", "facts", schema), {"schema": schema})
        row = await cursor.fetchone()
    if row is None:
        raise psycopg.OperationalError("it says nothing of itself")
    return Facts(**row)


def doubts(known: Facts) -> Iterator[Doubt]:
    """Why the server may lose what it has taken, or cannot keep what we send."""
    if known.version < OLDEST * 10_000:
        yield Doubt(f"is PostgreSQL {known.version // 10_000}, which is too old", f"use PostgreSQL {OLDEST} or newer")
    if known.encoding != "UTF8":
        yield Doubt(
            f"keeps text as {known.encoding}, which has not every character",
            f"make the database with ENCODING 'UTF8' (`createdb -E UTF8 -T template0 {known.database}`)",
        )
    if known.fsync == "off":
        yield Doubt("loses its database when its machine loses power (fsync off)", _setting("fsync"))
    if known.full_page_writes == "off":
        yield Doubt(
            "may damage its database when its machine loses power (full_page_writes off)", _setting("full_page_writes")
        )
    if known.synchronous_commit == "off":
        yield Doubt(
            "forgets what came last when it is killed (synchronous_commit off)",
            f"{_setting('synchronous_commit')}; `ALTER ROLE {known.user} SET synchronous_commit = on` is enough for us",
        )


def obstacles(known: Facts, schema: str) -> Iterator[Doubt]:
    """Why we cannot write to the server as it is."""
    if known.standby:
        yield Doubt("is a standby and takes no writes", "name the primary in the URL, or the hosts of both")
    elif known.read_only == "on":
        yield Doubt(
            "takes no writes (default_transaction_read_only)",
            f"`ALTER ROLE {known.user} SET default_transaction_read_only = off`, or mend what made it so",
        )
    if not known.has_schema and not known.may_create_schema:
        yield Doubt(
            f"has no schema {schema!r}, and {known.user} may not make it",
            f"as its owner: `CREATE SCHEMA {schema} AUTHORIZATION {known.user}`",
        )
    if known.has_schema and not (known.may_use_schema and known.may_create_tables):
        yield Doubt(
            f"does not let {known.user} make tables in schema {schema!r}",
            f"as its owner: `GRANT USAGE, CREATE ON SCHEMA {schema} TO {known.user}`",
        )

    elif known.closed_tables:
        yield Doubt(
            f"does not let {known.user} write to {known.closed_tables} tables of schema {schema!r}",
            f"as their owner: `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {known.user}`",
        )


def weaknesses(known: Facts, pool_size: int) -> Iterator[Doubt]:
    """What works now, and will hurt one day."""
    if known.autovacuum == "off":
        yield Doubt(
            "never clears away what was deleted (autovacuum off): its tables only grow",
            _setting("autovacuum"),
            is_failure=False,
        )
    if known.connections < pool_size:
        yield Doubt(
            f"allows {known.connections} connections, and one process of ours may want {pool_size}",
            "raise max_connections, or the limit of role or database; lower `pool_size` in the URL; or use PgBouncer",
            is_failure=False,
        )


def _setting(name: str) -> str:
    return f"`ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();`"
