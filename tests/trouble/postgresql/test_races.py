"""Two at once on one letter: whoever comes second looks at it again before it acts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

import psycopg
import pytest

from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.stores.postgresql import PostgresStore
from redrive.testing.builders import make_letter
from redrive.testing.clock import START
from redrive.testing.waiting import until
from tests.servers.postgresql import PostgreSQL

T = TypeVar("T")
DAY = timedelta(days=1)


@pytest.fixture
def letter() -> Letter:
    return make_letter(expires_at=START)


@asynccontextmanager
async def changed_meanwhile(url: str, change: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """A change that another process has made and not committed yet; at the end of the block it does."""
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(change.encode())
        yield other
        await other.commit()


async def after_waiting(server: PostgreSQL, url: str, other: psycopg.AsyncConnection, call: Awaitable[T]) -> T:
    """What a call returns that begins before the change of another is committed, and has to wait for that."""
    task = asyncio.ensure_future(call)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    await until(lambda: server.sql(waiting, database=url.rpartition("/")[2]) != "0")
    await other.commit()
    return await task


async def test_a_letter_that_is_no_longer_expired_is_not_pruned(
    store: PostgresStore, postgresql_server: PostgreSQL, postgresql_url: str, letter: Letter
) -> None:
    await store.letters.record([letter])
    async with changed_meanwhile(postgresql_url, "UPDATE redrive.letters SET expires_at = NULL") as other:
        prune = store.letters.prune(Query(expired=START + DAY), limit=10)
        assert await after_waiting(postgresql_server, postgresql_url, other, prune) == []
    assert await store.letters.count(Query()) == 1


async def test_a_letter_that_another_has_moved_is_not_moved(
    store: PostgresStore, postgresql_server: PostgreSQL, postgresql_url: str, letter: Letter
) -> None:
    await store.letters.record([letter])
    async with changed_meanwhile(postgresql_url, "UPDATE redrive.letters SET state = 'resolved'") as other:
        move = store.letters.move([letter.id], expect=[State.PENDING], to=State.ARCHIVED, now=START)
        assert await after_waiting(postgresql_server, postgresql_url, other, move) == []
    assert await store.letters.count(Query(states=(State.RESOLVED,))) == 1


async def test_a_claim_passes_over_what_another_is_changing(
    store: PostgresStore, postgresql_url: str, letter: Letter
) -> None:
    await store.letters.record([letter, make_letter()])
    change = f"UPDATE redrive.letters SET state = 'retrying', owner = 'other' WHERE id = '{letter.id}'"
    async with changed_meanwhile(postgresql_url, change):
        taken = await store.letters.claim(
            Query(), to=State.RETRYING, owner="me", now=START, until=START + DAY, limit=10
        )
        assert len(taken) == 1
        assert taken[0].id != letter.id
