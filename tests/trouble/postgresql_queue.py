"""A transport on a PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from redrive.clock import Clock, SystemClock
from redrive.model import Done
from redrive.transports.base import Delivery, Settlement
from redrive.transports.postgresql import PostgresqlTransport

LEASE = timedelta(seconds=30)


@asynccontextmanager
async def transport_on(
    url: str, *, lease: timedelta = LEASE, clock: Clock | None = None
) -> AsyncIterator[PostgresqlTransport]:
    """Closed at the end."""
    transport = PostgresqlTransport(url, clock=clock or SystemClock(), lease=lease)
    try:
        yield transport
    finally:
        await transport.aclose()


async def finish(transport: PostgresqlTransport, deliveries: Sequence[Delivery]) -> None:
    """They are done."""
    await transport.settle([Settlement(item, Done()) for item in deliveries])


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [item.message.id for item in deliveries]
