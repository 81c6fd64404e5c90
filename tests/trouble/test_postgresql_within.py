"""Sent on a connection of one's own: the message exists exactly when the data does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from redrive import Redrive
from redrive.errors import NotSent, UsageError
from tests.servers.postgresql import PgBouncer, PostgreSQL

Execute = Callable[[str], Awaitable[Any]]


class Borrowed:
    """A connection in a transaction, whichever library it is of; `execute` runs a statement on it."""

    def __init__(self, connection: Any, execute: Execute, commit: Execute, rollback: Execute) -> None:
        self.connection = connection
        self.execute = execute
        self.commit = commit
        self.rollback = rollback


async def by_psycopg(url: str, stack: AsyncExitStack) -> Borrowed:
    made = await stack.enter_async_context(await psycopg.AsyncConnection.connect(url))
    await made.execute("SELECT 1")
    return Borrowed(made, made.execute, lambda _: made.commit(), lambda _: made.rollback())


async def by_psycopg_sync(url: str, stack: AsyncExitStack) -> Borrowed:
    made = stack.enter_context(psycopg.Connection.connect(url))
    made.execute("SELECT 1")
    return Borrowed(
        made, _waiting(made.execute), _waiting(lambda _: made.commit()), _waiting(lambda _: made.rollback())
    )


async def by_asyncpg(url: str, stack: AsyncExitStack) -> Borrowed:
    made = await asyncpg.connect(url)
    stack.push_async_callback(made.close)
    transaction = made.transaction()
    await transaction.start()
    return Borrowed(made, made.execute, lambda _: transaction.commit(), lambda _: transaction.rollback())


async def by_sqlalchemy(url: str, stack: AsyncExitStack) -> Borrowed:
    engine = create_engine(_named(url, "psycopg"))
    stack.callback(engine.dispose)
    made = stack.enter_context(engine.connect())
    made.begin()
    return Borrowed(
        made,
        _waiting(lambda sql: made.execute(text(sql))),
        _waiting(lambda _: made.commit()),
        _waiting(lambda _: made.rollback()),
    )


async def by_session(url: str, stack: AsyncExitStack) -> Borrowed:
    engine = create_engine(_named(url, "psycopg"))
    stack.callback(engine.dispose)
    made = stack.enter_context(Session(engine))
    made.begin()
    return Borrowed(
        made,
        _waiting(lambda sql: made.execute(text(sql))),
        _waiting(lambda _: made.commit()),
        _waiting(lambda _: made.rollback()),
    )


def by_async_sqlalchemy(driver: str) -> Callable[[str, AsyncExitStack], Awaitable[Borrowed]]:
    async def opened(url: str, stack: AsyncExitStack) -> Borrowed:
        engine = create_async_engine(_named(url, driver))
        stack.push_async_callback(engine.dispose)
        made: AsyncConnection = await stack.enter_async_context(engine.connect())
        await made.begin()
        return Borrowed(made, lambda sql: made.execute(text(sql)), lambda _: made.commit(), lambda _: made.rollback())

    return opened


def by_async_session(driver: str) -> Callable[[str, AsyncExitStack], Awaitable[Borrowed]]:
    async def opened(url: str, stack: AsyncExitStack) -> Borrowed:
        engine = create_async_engine(_named(url, driver))
        stack.push_async_callback(engine.dispose)
        made = await stack.enter_async_context(AsyncSession(engine))
        await made.begin()
        return Borrowed(made, lambda sql: made.execute(text(sql)), lambda _: made.commit(), lambda _: made.rollback())

    return opened


LIBRARIES = {
    "psycopg": by_psycopg,
    "psycopg, sync": by_psycopg_sync,
    "asyncpg": by_asyncpg,
    "SQLAlchemy": by_sqlalchemy,
    "SQLAlchemy session": by_session,
    "SQLAlchemy async, psycopg": by_async_sqlalchemy("psycopg"),
    "SQLAlchemy async, asyncpg": by_async_sqlalchemy("asyncpg"),
    "SQLAlchemy async session, psycopg": by_async_session("psycopg"),
    "SQLAlchemy async session, asyncpg": by_async_session("asyncpg"),
}


@pytest_asyncio.fixture
async def app(postgresql_url: str) -> AsyncIterator[Redrive]:
    async with Redrive(transport=postgresql_url, store="memory://") as app:
        async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
            await connection.execute("CREATE TABLE orders (number integer PRIMARY KEY)")
        yield app


async def _counts(app: Redrive, url: str) -> tuple[int, int]:
    """How many orders there are, and how many messages."""
    depths = await app.transport().depths()
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute("SELECT count(*) FROM orders")).fetchone()
    assert row is not None
    return int(row[0]), depths["orders"].total if "orders" in depths else 0


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys())
async def test_the_message_exists_exactly_when_the_data_does(app: Redrive, postgresql_url: str, library: Any) -> None:
    async with AsyncExitStack() as stack:
        borrowed = await library(postgresql_url, stack)
        await borrowed.execute("INSERT INTO orders VALUES (1)")
        nul = {"id": "a\x00b", "key": b"\x00", "tenant": "t\x00", "headers": {"h": b"\x00\xff"}}
        await app.send("orders", b"\x00\xff body", connection=borrowed.connection, **nul)  # type: ignore[arg-type]
        assert await _counts(app, postgresql_url) == (0, 0)
        await borrowed.commit("")
    assert await _counts(app, postgresql_url) == (1, 1)
    [delivery] = await app.transport().receive("orders", 10)
    message = delivery.message
    assert (message.id, message.body, message.key, message.tenant) == ("a\x00b", b"\x00\xff body", b"\x00", "t\x00")
    assert message.headers == (("h", b"\x00\xff"),)


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys())
async def test_what_is_rolled_back_was_not_sent(app: Redrive, postgresql_url: str, library: Any) -> None:
    async with AsyncExitStack() as stack:
        borrowed = await library(postgresql_url, stack)
        await borrowed.execute("INSERT INTO orders VALUES (1)")
        await app.send("orders", {"n": 1}, connection=borrowed.connection)
        await borrowed.rollback("")
    assert await _counts(app, postgresql_url) == (0, 0)


async def test_a_worker_that_waits_hears_of_it_when_it_is_committed(app: Redrive, postgresql_url: str) -> None:
    receiving = asyncio.ensure_future(app.transport().receive("orders", 10))
    async with await psycopg.AsyncConnection.connect(postgresql_url, autocommit=True) as connection:
        async with connection.transaction():
            await app.send("orders", {"n": 1}, connection=connection)
            done, _ = await asyncio.wait([receiving], timeout=0.3)
            assert not done, "it was received before it was committed"
        assert len(await asyncio.wait_for(receiving, 30)) == 1


async def test_it_is_one_statement_in_that_transaction(
    app: Redrive, postgresql_server: PostgreSQL, postgresql_url: str
) -> None:
    made = await asyncpg.connect(postgresql_url)
    ran: list[str] = []
    made.add_query_logger(lambda record: ran.append(record.query))
    async with made.transaction():
        await app.send("orders", {"n": 1}, connection=made)
    await made.close()
    assert [query.partition("(")[0] for query in ran] == ["BEGIN;", "SELECT redrive.queue_send_within", "COMMIT;"]


# -- what cannot be ----------------------------------------------------------------------------------------------------


async def test_a_connection_in_autocommit_is_refused(app: Redrive, postgresql_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgresql_url, autocommit=True) as connection:
        with pytest.raises(UsageError, match=r"not in a transaction.*connection\.transaction"):
            await app.send("orders", {}, connection=connection)
    made = await asyncpg.connect(postgresql_url)
    with pytest.raises(UsageError, match="not in a transaction"):
        await app.send("orders", {}, connection=made)
    await made.close()
    for driver in ("psycopg", "asyncpg"):
        engine = create_async_engine(_named(postgresql_url, driver), isolation_level="AUTOCOMMIT")
        async with engine.connect() as autocommitting:
            with pytest.raises(UsageError, match="not in a transaction"):
                await app.send("orders", {}, connection=autocommitting)
            await autocommitting.execute(text("SELECT 1"))
            with pytest.raises(UsageError, match="not AUTOCOMMIT"):
                await app.send("orders", {}, connection=autocommitting)
        await engine.dispose()
    assert await _counts(app, postgresql_url) == (0, 0)


async def test_a_connection_is_refused_after_its_block(app: Redrive, postgresql_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
        async with connection.transaction():
            await app.send("orders", {}, connection=connection)
        with pytest.raises(UsageError, match="not in a transaction"):
            await app.send("orders", {}, connection=connection)
    with pytest.raises(UsageError, match="it is closed"):
        await app.send("orders", {}, connection=connection)
    async with asyncpg.create_pool(postgresql_url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as lent, lent.transaction():
            await app.send("orders", {}, connection=lent)
        with pytest.raises(UsageError, match="it is closed"):
            await app.send("orders", {}, connection=lent)
    engine = create_async_engine(_named(postgresql_url, "asyncpg"))
    async with engine.begin() as begun:
        await app.send("orders", {}, connection=begun)
    with pytest.raises(UsageError, match="it is closed"):
        await app.send("orders", {}, connection=begun)
    async with AsyncSession(engine) as session:
        async with session.begin():
            await app.send("orders", {}, connection=session)
        with pytest.raises(UsageError, match="not in a transaction"):
            await app.send("orders", {}, connection=session)
    await engine.dispose()
    assert await _counts(app, postgresql_url) == (0, 4)


async def test_a_connection_to_another_database_is_refused(
    app: Redrive, postgresql_url: str, postgresql_server: PostgreSQL
) -> None:
    bare, other = postgresql_server.new_database(), postgresql_server.new_database()
    async with Redrive(transport=other, store="memory://") as theirs:
        await theirs.send("orders", {})
        for url, why in ((bare, "there is no such queue"), (other, "leads to another database")):
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await connection.execute("SELECT 1")
                with pytest.raises(UsageError, match=why):
                    await app.send("orders", {}, connection=connection)
                await connection.rollback()
        assert (await theirs.transport().depths())["orders"].total == 1


async def test_what_is_no_connection_is_refused(app: Redrive, postgresql_url: str) -> None:
    engine = create_async_engine(_named(postgresql_url, "asyncpg"))
    for wrong in (postgresql_url, 7, engine):
        with pytest.raises(UsageError, match="connection="):
            await app.send("orders", {}, connection=wrong)
    await engine.dispose()
    lite = create_engine("sqlite://")
    with lite.begin() as connection, pytest.raises(UsageError, match="sqlite, and this queue is in PostgreSQL"):
        await app.send("orders", {}, connection=connection)


async def test_a_transaction_that_failed_already_is_refused(app: Redrive, postgresql_url: str) -> None:
    for name in ("psycopg", "asyncpg", "SQLAlchemy async, asyncpg"):
        async with AsyncExitStack() as stack:
            borrowed = await LIBRARIES[name](postgresql_url, stack)
            with pytest.raises(Exception, match="no_such_table"):
                await borrowed.execute("SELECT * FROM no_such_table")
            with pytest.raises(UsageError, match="has failed already"):
                await app.send("orders", {}, connection=borrowed.connection)
            await borrowed.rollback("")


async def test_a_transaction_that_only_reads_says_so(app: Redrive, postgresql_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
        await connection.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(NotSent, match="read-only"):
            await app.send("orders", {}, connection=connection)


async def test_other_transports_say_that_they_cannot(postgresql_url: str) -> None:
    async with (
        Redrive(transport="memory://", store="memory://") as app,
        await psycopg.AsyncConnection.connect(postgresql_url) as connection,
    ):
        with pytest.raises(UsageError, match="only postgresql:// sends within yours"):
            await app.send("orders", {}, connection=connection)


async def test_through_pgbouncer(pgbouncer_server: PgBouncer, pgbouncer_url: str, postgresql_url: str) -> None:
    """The app goes through PgBouncer, the data does not: it is the same queue."""
    async with (
        Redrive(transport=pgbouncer_url, store="memory://") as app,
        await psycopg.AsyncConnection.connect(postgresql_url) as connection,
    ):
        async with connection.transaction():
            await app.send("orders", {}, connection=connection)
        assert (await app.transport().depths())["orders"].total == 1


def _named(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


def _waiting(function: Callable[[str], Any]) -> Execute:
    async def call(sql: str) -> Any:
        return function(sql)

    return call
