"""The transport on PostgreSQL keeps every promise, straight and through PgBouncer. Its time is the server's, so passing
time is done to what is due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from redrive.clock import SystemClock
from redrive.model import Message
from redrive.testing.builders import make_message
from redrive.testing.transports import TransportBackend, TransportSuite
from redrive.transports.base import SendStatus, Transport
from redrive.transports.postgresql import PostgresqlTransport
from tests.trouble.postgresql_time import let_time_pass

_SHORT = timedelta(seconds=0.1)


class PostgresqlBackend(TransportBackend):
    """Every test in a database of its own on the shared server."""

    def __init__(self, url: str, straight: str) -> None:
        self.url = url
        self.straight = straight

    async def open(self) -> Transport:
        return PostgresqlTransport(self.url, clock=SystemClock(), lease=self.lease)

    async def let_pass(self, span: timedelta) -> None:
        if span <= _SHORT:
            await super().let_pass(span)
        else:
            await let_time_pass(self.straight, span)

    async def not_taken(self, transport: Transport) -> Sequence[tuple[Message, SendStatus]]:
        """A number that its column cannot hold."""
        return [(make_message(priority=1 << 70), SendStatus.REFUSED)]


class TestPostgresql(TransportSuite):
    @pytest.fixture
    def backend(self, postgresql_url: str) -> TransportBackend:
        return PostgresqlBackend(postgresql_url, postgresql_url)


class TestPgBouncer(TransportSuite):
    @pytest.fixture
    def backend(self, pgbouncer_url: str, postgresql_url: str) -> TransportBackend:
        return PostgresqlBackend(pgbouncer_url, postgresql_url)
