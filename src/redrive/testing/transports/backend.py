"""How the suite gets at a transport, and what its tests have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from redrive.clock import Clock, SystemClock
from redrive.model import Done, Message
from redrive.transports.base import CountsBegun, Delivery, Depth, SendStatus, Settlement, Transport

T = TypeVar("T")
EVERY_BYTE = bytes(range(256))
NOTHING = Depth(0, 0, 0)


class TransportBackend:
    """How the suite gets at a transport, and how time passes for it. Subclass it for yours."""

    lease = timedelta(seconds=30)
    largest_body = 1 << 20  # bytes; where the broker takes less, what becomes of more belongs in `not_taken`
    many = 1000  # messages; fewer where each takes its time
    worker_clock: Clock = SystemClock()  # of a worker on it; where `eventually` moves a clock, that one

    async def open(self) -> Transport:
        """Another instance: on the same queue if it can be shared, and otherwise on one of its own."""
        raise NotImplementedError

    def now(self) -> datetime:
        """What time it is for the transport."""
        return datetime.now(UTC)

    async def let_pass(self, span: timedelta) -> None:
        """Wait that long; a backend with a clock of its own moves it instead."""
        await asyncio.sleep(span.total_seconds())

    async def eventually(self, awaitable: Awaitable[T]) -> T:
        """Wait for its result, however long it takes."""
        return await asyncio.wait_for(awaitable, 30)

    async def not_taken(self, transport: Transport) -> Sequence[tuple[Message, SendStatus]]:
        """Messages that it does not take, and what it then says. None, where it takes whatever a message can be."""
        return ()

    async def aclose(self) -> None:
        """Take away what the backend made."""


async def take(backend: TransportBackend, transport: Transport, source: str, number: int) -> list[Delivery]:
    """Receive so many, in as many calls as it takes: what was sent at once need not come at once."""
    got: list[Delivery] = []
    while len(got) < number:
        some = await backend.eventually(transport.receive(source, number - len(got)))
        assert len(some) <= number - len(got), "more than the limit was received"
        got += some
    return got


async def drain(
    backend: TransportBackend, transport: Transport, source: str, number: int, *, limit: int = 100
) -> list[Delivery]:
    """Receive and finish so many."""
    got: list[Delivery] = []
    while len(got) < number:
        some = await backend.eventually(transport.receive(source, limit))
        await transport.settle([Settlement(delivery, Done()) for delivery in some])
        got += some
    return got


async def attempting(
    backend: TransportBackend, transport: Transport, number: int = 1, source: str = "orders"
) -> Sequence[Delivery]:
    """Receive so many, and begin their attempts."""
    deliveries = await backend.eventually(transport.receive(source, number))
    if isinstance(transport, CountsBegun):
        await transport.begin(deliveries)
    return deliveries


async def assert_waits(backend: TransportBackend, transport: Transport, source: str = "orders") -> None:
    """Assert that nothing can be received now."""
    receiving = asyncio.ensure_future(transport.receive(source, 10))
    await assert_waiting(backend, receiving)
    await cancelled(receiving)


async def assert_waiting(backend: TransportBackend, receiving: asyncio.Future[Sequence[Delivery]]) -> None:
    for _ in range(5):
        await backend.let_pass(timedelta(milliseconds=20))
        await asyncio.wait([receiving], timeout=0.005)
    if receiving.done():
        pytest.fail(f"nothing should have been received, but this was: {receiving.result()}")


async def cancelled(task: asyncio.Future[T]) -> T | None:
    """Its result, if it had one before it could be cancelled."""
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None
