"""Tables that are made, and brought up to date, by whoever opens the database first.

A component (the store, the queue) has its own line of versions. `migrations/0001-….sql` of its package makes version 1
out of nothing, `0002-….sql` makes 2 out of 1, and so on; each file is run once in a schema, ever. All of it is one
transaction under one lock: of a hundred workers that start at once one migrates, and a crash leaves what was before.
"""

from __future__ import annotations

from functools import cached_property
from importlib import resources
from typing import Any

from msgspec import Struct

from redrive.drivers.postgresql.pool import Connection
from redrive.drivers.postgresql.statements import statement
from redrive.errors import ConfigError

_HERE = "redrive.drivers.postgresql"


class Migrations(Struct, frozen=True, dict=True):
    """The migrations of one component: `Migrations("store", "redrive.stores.postgresql")`."""

    component: str
    package: str

    @cached_property
    def scripts(self) -> tuple[str, ...]:
        """The scripts in their order; the first makes version 1."""
        folder = resources.files(self.package).joinpath("migrations")
        names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
        expected = [f"{number:04}" for number in range(1, len(names) + 1)]
        assert [name[:4] for name in names] == expected, f"{self.package}/migrations are not numbered {expected}"
        return tuple(folder.joinpath(name).read_text("utf-8") for name in names)

    @property
    def version(self) -> int:
        """The version that this Redrive wants."""
        return len(self.scripts)

    async def bring_up_to_date(self, connection: Connection, schema: str) -> int:
        """Run what is missing; returns the version that was there. ConfigError if it is newer than ours."""
        found = await self.found(connection, schema)
        if found < self.version:
            async with connection.transaction():
                # whatever is the default here: what others did before we had the lock is to be seen
                await connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                await connection.execute(statement(_HERE, "lock", schema), {"schema": schema})
                await self._make_ground(connection, schema)
                found = await self.found(connection, schema)
                await self._run(connection, schema, found)
        return found

    async def found(self, connection: Connection, schema: str) -> int:
        """The version that is there; 0: none. ConfigError if it is newer than ours."""
        ground = await self._ground(connection, schema)
        if not ground or not ground[0][0]:
            return 0
        cursor = await connection.execute(statement(_HERE, "version", schema), {"component": self.component})
        row = await cursor.fetchone()
        version = int(row[0]) if row else 0
        if version > self.version:
            raise ConfigError(
                f"schema {schema!r} has version {version} of the {self.component}'s tables, and this Redrive knows "
                f"version {self.version}: upgrade Redrive, or name another schema in the URL (`?schema=…`)"
            )
        return version

    async def _make_ground(self, connection: Connection, schema: str) -> None:
        if not await self._ground(connection, schema):  # IF NOT EXISTS would want the right to make it all the same
            await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(statement(_HERE, "migrations", schema))

    async def _ground(self, connection: Connection, schema: str) -> list[tuple[Any, ...]]:
        cursor = await connection.execute(statement(_HERE, "ground", schema), {"schema": schema})
        return await cursor.fetchall()

    async def _run(self, connection: Connection, schema: str, found: int) -> None:
        for version, script in enumerate(self.scripts[found:], found + 1):
            await connection.execute(script.replace("{schema}", schema).encode())
            noted = {"component": self.component, "version": version}
            await connection.execute(statement(_HERE, "migrated", schema), noted)
