"""exactly_once=True: what a handler writes and its ack are one transaction, whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from redrive import Message, Policy, Redrive, Transient, immediate
from redrive.errors import ConfigError
from redrive.forensics.query import Query
from redrive.model import Reason, State
from redrive.service import Service
from redrive.testing.waiting import until
from redrive.worker import Worker
from tests.actors import acting

Connection = psycopg.AsyncConnection[Any]
TWICE = Policy(attempts=2, backoff=immediate())


@pytest_asyncio.fixture
async def app(postgresql_url: str) -> AsyncIterator[Redrive]:
    async with Redrive(transport=postgresql_url, store="memory://") as app:
        async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
            await connection.execute("CREATE TABLE charged (id text)")
        yield app


@asynccontextmanager
async def working(app: Redrive) -> AsyncIterator[None]:
    worker = Worker(app, upkeep=False)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def charge(connection: Connection, id: str) -> None:
    await connection.execute("INSERT INTO charged VALUES (%s)", (id,))


async def charged(url: str) -> Counter[str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        rows = await (await connection.execute("SELECT id FROM charged")).fetchall()
    return Counter(row[0] for row in rows)


def is_empty(app: Redrive) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return not await app.transport().depths()

    return look


async def test_the_work_and_the_ack_are_committed_together(app: Redrive, postgresql_url: str) -> None:
    inside: list[tuple[int, int]] = []

    @app.handler("orders", exactly_once=True)
    async def handle(order: dict[str, int], message: Message, connection: Connection) -> None:
        await charge(connection, message.id)
        inside.append((sum((await charged(postgresql_url)).values()), (await app.transport().depths())["orders"].total))

    await app.send("orders", {"n": 1}, id="a")
    async with working(app):
        await until(is_empty(app), what="the message is done with")
    assert inside == [(0, 1)], "something was committed before the handler had ended"
    assert await charged(postgresql_url) == {"a": 1}


async def test_a_parameter_annotated_as_a_connection_will_do(app: Redrive, postgresql_url: str) -> None:
    @app.handler("orders", exactly_once=True)
    async def handle(order: dict[str, int], database: psycopg.AsyncConnection) -> None:
        await charge(database, str(order["n"]))

    await app.send("orders", {"n": 7})
    async with working(app):
        await until(is_empty(app), what="the message is done with")
    assert await charged(postgresql_url) == {"7": 1}


async def test_what_it_sends_with_its_connection_exists_exactly_when_it_has_succeeded(
    app: Redrive, postgresql_url: str
) -> None:
    @app.handler("orders", exactly_once=True, policy=TWICE)
    async def handle(order: dict[str, int], message: Message, connection: Connection) -> None:
        await app.send("mails", {"attempt": message.attempt}, connection=connection)
        if message.attempt == 1:
            raise Transient("once")

    app.declare("mails")
    await app.send("orders", {})
    async with working(app):
        await until(lambda: _has_mail(app), what="the order is done with, and its mail is there")
    [mail] = await app.transport().receive("mails", 10)
    assert mail.message.body == b'{"attempt":2}'


async def _has_mail(app: Redrive) -> bool:
    depths = await app.transport().depths()
    return "orders" not in depths and depths["mails"].total == 1


async def test_what_fails_is_rolled_back_retried_and_buried(app: Redrive, postgresql_url: str) -> None:
    @app.handler("orders", exactly_once=True, policy=TWICE)
    async def handle(order: dict[str, int], message: Message, connection: Connection) -> None:
        await charge(connection, f"{message.id}, attempt {message.attempt}")
        if message.attempt < order["good"]:
            raise Transient("not yet")

    await app.send("orders", {"good": 2}, id="second")
    await app.send("orders", {"good": 9}, id="never")
    async with working(app):
        await until(is_empty(app), what="both are done with")
    assert await charged(postgresql_url) == {"second, attempt 2": 1}
    [letter] = (await app.store.letters.search(Query())).letters
    assert (letter.message.id, letter.reason, len(letter.failures)) == ("never", Reason.ATTEMPTS, 2)


async def test_a_commit_that_fails_is_a_failure_of_the_attempt(app: Redrive, postgresql_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
        await connection.execute("CREATE TABLE once (id text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        await connection.execute("INSERT INTO once VALUES ('taken')")

    @app.handler("orders", exactly_once=True, policy=TWICE)
    async def handle(order: dict[str, int], connection: Connection) -> None:
        await charge(connection, "rolled back")
        await connection.execute("INSERT INTO once VALUES ('taken')")

    await app.send("orders", {})
    async with working(app):
        await until(is_empty(app), what="it is buried")
    [letter] = (await app.store.letters.search(Query())).letters
    assert "UniqueViolation" in letter.last.type
    assert await charged(postgresql_url) == {}


async def test_a_handler_cannot_commit_by_itself(app: Redrive, postgresql_url: str) -> None:
    @app.handler("orders", exactly_once=True, policy=Policy(attempts=1))
    async def handle(order: dict[str, int], connection: Connection) -> None:
        await charge(connection, "early")
        await connection.commit()

    await app.send("orders", {})
    async with working(app):
        await until(is_empty(app), what="it is buried")
    assert await charged(postgresql_url) == {}


async def test_a_lost_lease_makes_the_commit_fail(app: Redrive, postgresql_url: str) -> None:
    attempts: list[int] = []

    @app.handler("orders", exactly_once=True, policy=Policy(attempts=1))
    async def handle(order: dict[str, int], message: Message, connection: Connection) -> None:
        attempts.append(message.attempt)
        await charge(connection, f"{len(attempts)}")
        if len(attempts) == 1:
            await _sql(postgresql_url, "UPDATE redrive.queue SET lease = 7")  # another worker has it

    await app.send("orders", {})
    async with working(app):
        await until(lambda: len(attempts) == 1, what="it was attempted")
        assert await charged(postgresql_url) == {}
        await _sql(postgresql_url, "UPDATE redrive.queue SET lease = NULL, until = NULL, attempt = 0")
        await until(is_empty(app), what="it is done with")
    assert await charged(postgresql_url) == {"2": 1}
    assert (await app.store.letters.search(Query())).letters == (), "who had lost its lease buried it"


async def _sql(url: str, statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(statement.encode())


async def test_a_connection_that_is_cut_in_the_middle_costs_nothing(app: Redrive, postgresql_url: str) -> None:
    @app.handler("orders", exactly_once=True, policy=Policy(backoff=immediate()))
    async def handle(order: dict[str, int], message: Message, connection: Connection) -> None:
        await charge(connection, message.id)
        if message.attempt == 1:
            async with await psycopg.AsyncConnection.connect(postgresql_url) as other:
                await other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

    for n in range(5):
        await app.send("orders", {}, id=f"{n}")
    async with working(app):
        await until(is_empty(app), what="all are done with")
    assert await charged(postgresql_url) == {f"{n}": 1 for n in range(5)}


async def test_what_takes_too_long_is_rolled_back(app: Redrive, postgresql_url: str) -> None:
    @app.handler("orders", exactly_once=True, policy=Policy(attempts=1, timeout=timedelta(milliseconds=200)))
    async def handle(order: dict[str, int], connection: Connection) -> None:
        await charge(connection, "slow")
        await connection.execute("SELECT pg_sleep(60)")

    await app.send("orders", {})
    async with working(app):
        await until(is_empty(app), what="it is buried")
    [letter] = (await app.store.letters.search(Query())).letters
    assert "AttemptTimeout" in letter.last.type
    assert await charged(postgresql_url) == {}


async def test_a_letter_that_is_replayed_is_resolved(app: Redrive, postgresql_url: str) -> None:
    broken = True

    @app.handler("orders", exactly_once=True, policy=Policy(attempts=1))
    async def handle(order: dict[str, int], message: Message, connection: Connection) -> None:
        if broken:
            raise Transient("not yet")
        await charge(connection, message.id)

    await app.send("orders", {}, id="a")
    async with working(app):
        await until(is_empty(app), what="it is buried")
        broken = False
        service = Service(app)
        await service.retry([(await app.store.letters.search(Query())).letters[0].id], actor=acting("test"))
        await until(lambda: _is_resolved(app), what="its letter is resolved")
    assert await charged(postgresql_url) == {"a": 1}


async def _is_resolved(app: Redrive) -> bool:
    [letter] = (await app.store.letters.search(Query())).letters
    return letter.state is State.RESOLVED


# -- what cannot be ----------------------------------------------------------------------------------------------------


async def handles(order: dict[str, int], connection: Connection) -> None:
    """A handler that takes a connection."""


def test_a_transport_without_transactions_is_refused() -> None:
    app = Redrive(transport="memory://", store="memory://")
    app.handler("orders", exactly_once=True)(handles)
    with pytest.raises(ConfigError, match=r"exactly_once=True.*such as postgresql://"):
        app.context(app.handlers["orders"])


def test_a_handler_without_a_connection_is_refused(postgresql_url: str) -> None:
    app = Redrive(transport=postgresql_url, store="memory://")

    async def without(order: dict[str, int]) -> None: ...

    def sync(order: dict[str, int], connection: Connection) -> None: ...

    with pytest.raises(ConfigError, match="add a parameter `connection"):
        app.handler("orders", exactly_once=True)(without)
    with pytest.raises(ConfigError, match="is async, as its connection is"):
        app.handler("orders", exactly_once=True)(sync)
