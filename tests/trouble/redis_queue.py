"""A transport on the shared Redis, in keys of its own."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from redrive.clock import Clock, SystemClock
from redrive.drivers.redis import Link
from redrive.model import Done
from redrive.transports.base import Delivery, Settlement
from redrive.transports.redis import RedisTransport

LEASE = timedelta(seconds=30)


def private_url(url: str) -> str:
    """The same server under a prefix that nobody else has."""
    return f"{url}{'&' if '?' in url else '?'}prefix=test-{secrets.token_hex(6)}"


@asynccontextmanager
async def transport_on(
    url: str, *, lease: timedelta = LEASE, clock: Clock | None = None
) -> AsyncIterator[RedisTransport]:
    """Closed at the end."""
    transport = RedisTransport(url, clock=clock or SystemClock(), lease=lease)
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def link_to(url: str) -> AsyncIterator[Link]:
    """For a look behind the transport."""
    link = Link(url)
    try:
        yield link
    finally:
        await link.aclose()


async def finish(transport: RedisTransport, deliveries: Sequence[Delivery]) -> None:
    """They are done."""
    await transport.settle([Settlement(one, Done()) for one in deliveries])


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [one.message.id for one in deliveries]
