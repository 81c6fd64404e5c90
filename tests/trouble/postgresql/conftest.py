"""Stores on PostgreSQL, closed when the test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from redrive.stores.postgresql import PostgresStore, open_store

OpensStore = Callable[[str], PostgresStore]


@pytest_asyncio.fixture
async def opens() -> AsyncIterator[OpensStore]:
    stores: list[PostgresStore] = []

    def open(url: str) -> PostgresStore:
        stores.append(open_store(url))
        return stores[-1]

    yield open
    for store in stores:
        await store.aclose()


@pytest.fixture
def store(postgresql_url: str, opens: OpensStore) -> PostgresStore:
    return opens(postgresql_url)
