"""The connection layer for PostgreSQL on the real server: migrations, retries, translated errors, PgBouncer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest

from redrive.drivers.postgresql.link import Link, rows
from redrive.drivers.postgresql.migrations import Migrations
from redrive.drivers.postgresql.pool import Connection
from redrive.errors import ConfigError, StoreUnavailable
from tests.servers.fixtures import StartsServer
from tests.servers.postgresql import PgBouncer, PostgreSQL

NOTES = Migrations("notes", "tests.drivers.component")
Opens = Callable[..., Link]


class Older(Migrations, frozen=True, dict=True):
    """The same component as an earlier Redrive knew it."""

    @property
    def scripts(self) -> tuple[str, ...]:
        return NOTES.scripts[:1]


@pytest.fixture
async def open_link() -> AsyncIterator[Opens]:
    links: list[Link] = []

    def open(url: str, migrations: Migrations = NOTES) -> Link:
        links.append(Link(url, migrations=migrations, unavailable=StoreUnavailable))
        return links[-1]

    yield open
    for link in links:
        await link.aclose()


@pytest.fixture(params=["direct", "pgbouncer"])
def url(request: pytest.FixtureRequest, postgresql_url: str, pgbouncer_server: PgBouncer) -> str:
    return postgresql_url if request.param == "direct" else pgbouncer_server.through(postgresql_url)


async def test_tables_are_made_and_brought_up_to_date_by_whoever_comes_first(url: str, open_link: Opens) -> None:
    old = open_link(url, Older("notes", "tests.drivers.component"))
    assert await old.fetch("SELECT * FROM redrive.notes") == [(1, "from version 1")]
    links = [open_link(url) for _ in range(5)]
    found = await asyncio.gather(*(link.fetch("SELECT * FROM redrive.notes") for link in links))
    assert found == [[(1, "from version 1", "nobody")]] * 5
    assert await links[0].version() == 2


async def test_of_many_who_start_at_once_one_makes_the_tables(url: str, open_link: Opens) -> None:
    links = [open_link(url) for _ in range(12)]
    found = await asyncio.gather(*(link.fetch("SELECT count(*) FROM redrive.notes") for link in links))
    assert found == [[(1,)]] * 12


async def test_tables_from_the_future_are_refused(url: str, open_link: Opens) -> None:
    await open_link(url).fetch("SELECT 1")
    old = open_link(url, Older("notes", "tests.drivers.component"))
    with pytest.raises(ConfigError, match=r"has version 2 .* upgrade Redrive"):
        await old.fetch("SELECT 1")


async def test_a_migration_that_fails_leaves_nothing_behind(postgresql_url: str, open_link: Opens) -> None:
    class Broken(Migrations, frozen=True, dict=True):
        @property
        def scripts(self) -> tuple[str, ...]:
            return (NOTES.scripts[0], "ALTER TABLE {schema}.nothing ADD COLUMN a text")

    broken = open_link(postgresql_url, Broken("notes", "tests.drivers.component"))
    with pytest.raises(StoreUnavailable, match="nothing"):
        await broken.fetch("SELECT 1")
    assert await open_link(postgresql_url).version() == 0


async def test_each_schema_has_its_own_tables(postgresql_url: str, open_link: Opens) -> None:
    await open_link(postgresql_url).fetch("DELETE FROM redrive.notes")
    other = open_link(postgresql_url + "?schema=other")
    assert await other.fetch("SELECT count(*) FROM other.notes") == [(1,)]


async def test_tables_that_somebody_dropped_are_made_again(postgresql_url: str, open_link: Opens) -> None:
    link = open_link(postgresql_url)
    await link.fetch("DROP SCHEMA redrive CASCADE")
    with pytest.raises(StoreUnavailable, match="our tables are gone"):
        await link.fetch("SELECT * FROM redrive.notes")
    assert await link.fetch("SELECT count(*) FROM redrive.notes") == [(1,)]


async def test_what_fails_in_a_transaction_leaves_nothing(url: str, open_link: Opens) -> None:
    link = open_link(url)

    async def work(connection: Connection) -> None:
        await rows(connection, "INSERT INTO redrive.notes VALUES (2, 'x')")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await link.run(work)
    assert await link.fetch("SELECT id FROM redrive.notes") == [(1,)]


async def test_a_deadlock_is_run_again_until_both_are_through(url: str, open_link: Opens) -> None:
    link = open_link(url)
    await link.fetch("INSERT INTO redrive.notes VALUES (2, '')")
    both_hold = asyncio.Barrier(2)
    tries: list[int] = []

    def holding(first: int, second: int) -> Callable[[Connection], Awaitable[None]]:
        is_first = True

        async def work(connection: Connection) -> None:
            nonlocal is_first
            tries.append(first)
            await rows(connection, "UPDATE redrive.notes SET text = text || 'x' WHERE id = %s", [first])
            if is_first:
                is_first = False
                await both_hold.wait()
            await rows(connection, "UPDATE redrive.notes SET text = text || 'x' WHERE id = %s", [second])

        return work

    await link.fetch("UPDATE redrive.notes SET text = ''")
    await asyncio.gather(link.run(holding(1, 2)), link.run(holding(2, 1)))
    assert await link.fetch("SELECT text FROM redrive.notes ORDER BY id") == [("xx",), ("xx",)]
    assert len(tries) == 3


async def test_a_serialization_failure_is_run_again(url: str, open_link: Opens) -> None:
    link = open_link(url)
    await link.fetch("UPDATE redrive.notes SET text = ''")
    tries = 0

    async def work(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await rows(connection, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        await rows(connection, "SELECT text FROM redrive.notes")
        if tries == 1:
            await link.fetch("UPDATE redrive.notes SET text = text || 'other,'")
        await rows(connection, "UPDATE redrive.notes SET text = text || 'mine'")

    await link.run(work)
    assert (tries, await link.fetch("SELECT text FROM redrive.notes")) == (2, [("other,mine",)])


async def test_a_statement_that_takes_too_long_is_given_up_and_the_connection_serves_on(
    url: str, open_link: Opens
) -> None:
    link = open_link(url + "?timeout=0.5&pool_size=1")
    await link.fetch("SELECT 1")
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await link.fetch("SELECT pg_sleep(60)")
    assert await link.fetch("SELECT 1") == [(1,)]


async def test_the_servers_own_timeout_is_told(postgresql_url: str, open_link: Opens) -> None:
    link = open_link(postgresql_url + "?options=-c%20statement_timeout%3D100")
    with pytest.raises(StoreUnavailable, match="raise its statement_timeout"):
        await link.fetch("SELECT pg_sleep(60)")


async def test_a_value_that_cannot_be_held_is_no_outage(url: str, open_link: Opens) -> None:
    link = open_link(url)
    with pytest.raises(ValueError, match="NUL"):
        await link.fetch("INSERT INTO redrive.notes VALUES (9, %s)", ["a\0b"])
    with pytest.raises(ValueError, match="surrogates"):
        await link.fetch("INSERT INTO redrive.notes VALUES (9, %s)", ["\ud800"])
    with pytest.raises(ValueError, match="out of range"):
        await link.fetch("INSERT INTO redrive.notes VALUES (%s, '')", [1 << 40])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("redrive@", "nobody_such@"), "it refuses us"),
        (("/test_", "/none_"), "there is no such database"),
        (("127.0.0.1:", "127.0.0.2:"), "refused"),
    ],
)
async def test_a_server_that_refuses_us_is_told_at_once_and_why(
    postgresql_url: str, open_link: Opens, change: tuple[str, str], said: str
) -> None:
    with pytest.raises(StoreUnavailable, match=said):
        await open_link(postgresql_url.replace(*change)).fetch("SELECT 1")


async def test_whoever_lacks_the_right_to_make_tables_is_told(
    postgresql_server: PostgreSQL, postgresql_url: str, open_link: Opens
) -> None:
    role = f"poor_{postgresql_url.rpartition('_')[2]}"
    postgresql_server.sql(f"CREATE ROLE {role} LOGIN")
    with pytest.raises(StoreUnavailable, match="lacks a right"):
        await open_link(postgresql_url.replace("redrive@", f"{role}@")).fetch("SELECT 1")


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
async def test_a_server_that_may_lose_letters_is_refused(
    start_server: StartsServer, open_link: Opens, setting: str
) -> None:
    server = start_server(lambda: PostgreSQL(lines=(f"{setting} = off",)))
    with pytest.raises(ConfigError, match=rf"{setting} off.*ALTER SYSTEM SET {setting} = on"):
        await open_link(server.url).fetch("SELECT 1")
    assert await open_link(server.url + "?checks=off").fetch("SELECT 1") == [(1,)]


async def test_a_server_that_was_restarted_is_used_again_at_once(start_server: StartsServer, open_link: Opens) -> None:
    server = start_server(PostgreSQL)
    link = open_link(server.url)
    await asyncio.gather(*(link.fetch("SELECT pg_sleep(0.05)") for _ in range(5)))
    server.kill9()
    with pytest.raises(StoreUnavailable):
        await link.fetch("SELECT 1")
    server.start()
    assert await asyncio.gather(*(link.fetch("SELECT 1") for _ in range(5))) == [[(1,)]] * 5


async def test_a_session_hears_a_notification(postgresql_url: str, open_link: Opens) -> None:
    link = open_link(postgresql_url)
    async with link.session() as session:
        await session.execute("LISTEN news")
        await link.fetch("NOTIFY news, 'x'")
        async for notice in session.notifies(timeout=30, stop_after=1):
            assert notice.payload == "x"
    with pytest.raises(StoreUnavailable, match="direct=off"):
        async with open_link(postgresql_url + "?direct=off").session():
            pass


async def test_a_closed_link_is_unavailable(postgresql_url: str, open_link: Opens) -> None:
    link = open_link(postgresql_url)
    await link.fetch("SELECT 1")
    await link.aclose()
    await link.aclose()
    with pytest.raises(StoreUnavailable, match="closed"):
        await link.fetch("SELECT 1")


async def test_a_call_that_is_cancelled_leaves_no_transaction_open(url: str, open_link: Opens) -> None:
    link = open_link(url + "?pool_size=1")
    begun = asyncio.Event()

    async def work(connection: Connection) -> None:
        await rows(connection, "UPDATE redrive.notes SET text = 'cancelled'")
        begun.set()
        await rows(connection, "SELECT pg_sleep(60)")

    task = asyncio.create_task(link.run(work))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await link.fetch("SELECT text FROM redrive.notes") == [("from version 1",)]


def test_the_errors_we_name_are_those_of_psycopg() -> None:
    assert issubclass(psycopg.errors.DeadlockDetected, psycopg.Error)
    assert (psycopg.errors.DeadlockDetected.sqlstate, psycopg.errors.SerializationFailure.sqlstate) == (
        "40P01",
        "40001",
    )


async def test_a_statement_ends_in_the_server_when_nobody_waits_for_it(postgresql_url: str, open_link: Opens) -> None:
    link = open_link(postgresql_url)
    await link.fetch("SELECT 1")
    asked = asyncio.create_task(link.fetch("SELECT pg_sleep(3600)", patience=3600))
    active = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(3600)'"
    async with asyncio.timeout(60):
        while await link.fetch(active) != [(1,)]:
            assert not asked.done()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        while await link.fetch(active) != [(0,)]:
            pass
