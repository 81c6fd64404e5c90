"""Every transport keeps every promise (the suite is redrive.testing.transports)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from redrive.clock import SystemClock
from redrive.model import Message
from redrive.testing.builders import make_message
from redrive.testing.clock import ManualClock
from redrive.testing.transports import TransportBackend, TransportSuite
from redrive.transports.base import SendStatus, Transport
from redrive.transports.memory import MemoryTransport
from redrive.transports.sqlite import SqliteTransport

T = TypeVar("T")


class ManualBackend(TransportBackend):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.clock = self.worker_clock = ManualClock()

    def now(self) -> datetime:
        return self.clock.now()

    async def let_pass(self, span: timedelta) -> None:
        await self.clock.advance(span.total_seconds())

    async def eventually(self, awaitable: Awaitable[T]) -> T:
        return await self.clock.eventually(awaitable)


class MemoryBackend(ManualBackend):
    def __init__(self, native_delay: bool) -> None:
        super().__init__()
        self.native_delay = native_delay

    async def open(self) -> Transport:
        return MemoryTransport(clock=self.clock, lease=self.lease, native_delay=self.native_delay)


class SqliteBackend(ManualBackend):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.url = f"sqlite:///{path}"

    async def open(self) -> Transport:
        return SqliteTransport(self.url, clock=self.clock, lease=self.lease)

    async def not_taken(self, transport: Transport) -> Sequence[tuple[Message, SendStatus]]:
        """A number that no column of SQLite can hold."""
        return [(make_message(priority=1 << 70), SendStatus.REFUSED)]


class TestMemory(TransportSuite):
    @pytest.fixture
    def backend(self) -> TransportBackend:
        return MemoryBackend(native_delay=True)


class TestMemoryWithoutDelay(TransportSuite):
    @pytest.fixture
    def backend(self) -> TransportBackend:
        return MemoryBackend(native_delay=False)


class TestSqlite(TransportSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> TransportBackend:
        return SqliteBackend(tmp_path / "queue.db")

    async def test_a_send_of_another_process_wakes_a_receive(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        transport = SqliteTransport(url, clock=SystemClock(), lease=timedelta(seconds=30))
        try:
            receiving = asyncio.ensure_future(transport.receive("orders", 10))
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", _SENDER, url)
            assert await process.wait() == 0
            [delivery] = await asyncio.wait_for(receiving, 30)
            assert (delivery.message.id, delivery.message.body) == ("from elsewhere", b"\x00\xff")
        finally:
            await transport.aclose()

    async def test_what_a_cancelled_receive_took_is_given_back_even_when_it_is_closed_at_once(
        self, tmp_path: Path
    ) -> None:
        url = f"sqlite:///{tmp_path / 'closed.db'}"
        for number in range(30):
            transport = SqliteTransport(url, clock=SystemClock(), lease=timedelta(hours=1))
            await transport.send([make_message(id=f"{number}")])
            receiving = asyncio.ensure_future(transport.receive("orders", 100))
            await asyncio.sleep(number * 0.0001)
            if receiving.done():
                await transport.aclose()
                break
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            await transport.aclose()
            transport = SqliteTransport(url, clock=SystemClock(), lease=timedelta(hours=1))
            assert (await transport.depths())["orders"].leased == 0
            await transport.aclose()


_SENDER = """
import asyncio, sys
from datetime import timedelta
from redrive.clock import SystemClock
from redrive.model import Message
from redrive.testing.builders import make_message
from redrive.transports.sqlite import SqliteTransport

async def main():
    transport = SqliteTransport(sys.argv[1], clock=SystemClock(), lease=timedelta(seconds=30))
    await transport.send([make_message(id="from elsewhere", body=b"\\x00\\xff")])
    await transport.aclose()

asyncio.run(main())
"""
