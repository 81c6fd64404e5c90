"""PostgreSQL keeps every promise of a store (the suite is redrive.testing.stores): itself, and behind PgBouncer."""

from __future__ import annotations

import pytest

from redrive.stores.base import Store
from redrive.stores.postgresql import PostgresStore
from redrive.stores.shape import NATIVE, Shape
from redrive.testing.stores import StoreBackend, StoreSuite
from tests.conformance.test_stores import MailShape


class PostgresBackend(StoreBackend):
    def __init__(self, url: str, shape: Shape = NATIVE) -> None:
        self.url = url
        self.shape = shape

    async def open(self) -> Store:
        return PostgresStore(self.url, shape=self.shape)


class TestPostgreSQL(StoreSuite):
    @pytest.fixture
    def backend(self, postgresql_url: str) -> StoreBackend:
        return PostgresBackend(postgresql_url)


class TestBehindPgBouncer(StoreSuite):
    @pytest.fixture
    def backend(self, pgbouncer_url: str) -> StoreBackend:
        return PostgresBackend(pgbouncer_url)


class TestInAnotherShapeAndSchema(StoreSuite):
    @pytest.fixture
    def backend(self, postgresql_url: str) -> StoreBackend:
        return PostgresBackend(f"{postgresql_url}?schema=dead_letters&prepare=on", MailShape())
