"""What the doctor says of a store in PostgreSQL: what is missing, what is unsafe, and how to mend it."""

from __future__ import annotations

import pytest

from redrive import Redrive
from redrive.doctor import Level, examine
from redrive.doctor.findings import Finding
from redrive.testing.builders import make_letter
from tests.servers.fixtures import StartsServer
from tests.servers.postgresql import PostgreSQL, Standby


async def findings(url: str, *, record: bool = False) -> list[Finding]:
    app = Redrive(transport="memory://", store=url)
    async with app:
        if record:
            await app.store.letters.record([make_letter()])
        return [found for found in (await examine(app)).findings if found.about in ("store", "letters")]


async def wrong(url: str) -> list[Finding]:
    return [found for found in await findings(url) if found.level is not Level.FINE]


async def test_a_server_that_is_well(postgresql_url: str) -> None:
    found = await findings(postgresql_url, record=True)
    assert {finding.level for finding in found} <= {Level.FINE, Level.WARNING}
    assert not [finding for finding in found if finding.level is Level.WARNING and finding.about == "store"]
    assert any("1 kept" in finding.text for finding in found)


async def test_where_nothing_is_nothing_is_made(postgresql_server: PostgreSQL, postgresql_url: str) -> None:
    found = await findings(postgresql_url)
    assert any("none yet" in finding.text for finding in found)
    database = postgresql_url.rpartition("/")[2]
    assert (
        postgresql_server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'redrive'", database=database) == "0"
    )


async def test_all_that_is_unsafe_is_named_with_its_mend(start_server: StartsServer) -> None:
    off = ("fsync", "full_page_writes", "synchronous_commit", "autovacuum")
    server = start_server(lambda: PostgreSQL(lines=[f"{name} = off" for name in off]))
    for url in (server.url, f"{server.url}?checks=off"):
        said = " ".join(f"{finding.text}: {finding.mend}" for finding in await wrong(url))
        for name in off:
            assert f"({name} off)" in said
            assert f"ALTER SYSTEM SET {name} = on" in said


async def test_too_few_connections(postgresql_server: PostgreSQL, postgresql_url: str) -> None:
    database = postgresql_url.rpartition("/")[2]
    postgresql_server.sql(f"ALTER DATABASE {database} CONNECTION LIMIT 5")
    [found] = await wrong(postgresql_url)
    assert (found.level, "allows 5 connections" in found.text) == (Level.WARNING, True)
    assert await wrong(f"{postgresql_url}?pool_size=5") == []


async def test_rights_are_named_as_the_statement_that_gives_them(
    postgresql_server: PostgreSQL, postgresql_url: str
) -> None:
    database = postgresql_url.rpartition("/")[2]
    user = f"user_of_{database}"
    postgresql_server.sql(f"CREATE ROLE {user} LOGIN")
    url = postgresql_url.replace("redrive@", f"{user}@")
    [found] = await wrong(url)
    assert found.level is Level.FAILURE
    assert f"CREATE SCHEMA redrive AUTHORIZATION {user}" in found.text
    postgresql_server.sql("CREATE SCHEMA redrive", database=database)
    [found] = await wrong(url)
    grant = f"GRANT USAGE, CREATE ON SCHEMA redrive TO {user}"
    assert grant in found.text
    postgresql_server.sql(grant, database=database)
    assert await wrong(url) == []
    assert any("1 kept" in finding.text for finding in await findings(url, record=True))


async def test_tables_of_another_user(postgresql_server: PostgreSQL, postgresql_url: str) -> None:
    await findings(postgresql_url, record=True)
    database = postgresql_url.rpartition("/")[2]
    user = f"guest_of_{database}"
    grant = f"CREATE ROLE {user} LOGIN; GRANT USAGE, CREATE ON SCHEMA redrive TO {user}"
    postgresql_server.sql(grant, database=database)
    url = postgresql_url.replace("redrive@", f"{user}@")
    [found] = await wrong(url)
    mend = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA redrive TO {user}"
    assert mend in f"{found.text} {found.mend}"
    postgresql_server.sql(mend, database=database)
    assert await wrong(url) == []


async def test_a_standby(start_server: StartsServer) -> None:
    primary = start_server(PostgreSQL)
    standby = start_server(lambda: Standby(primary))
    found = await wrong(standby.url)
    assert any("standby" in finding.text and "primary" in finding.text for finding in found)


@pytest.mark.parametrize("change", [("redrive@", "nobody@"), ("/test_", "/no_test_")])
async def test_a_server_that_refuses_us(postgresql_url: str, change: tuple[str, str]) -> None:
    [found] = await wrong(postgresql_url.replace(*change))
    assert found.level is Level.FAILURE
    assert "does not answer" in found.text
