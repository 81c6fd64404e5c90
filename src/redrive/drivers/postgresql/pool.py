"""A few connections, each used by one at a time.

Not psycopg's own pool: that connects in the background, so that a wrong password is told as a timeout and a server that
is back waits for the pool's next attempt (docs/decisions/0042-postgresql.md).
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
_LONGEST_LIFE = 3600.0  # seconds: a backend's memory only grows, and a name may lead elsewhere by now


class Pool:
    """At most `size` connections. Whoever finds none connects, and is told why that fails."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._capacity = asyncio.Semaphore(size)
        self._idle: list[tuple[Connection, float]] = []  # with the time it was made
        self._used: set[Connection] = set()
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One for the block. The one used last comes first, so that the others may be let go."""
        async with self._capacity:
            if self._is_closed:
                raise psycopg.OperationalError("it was closed")
            connection, made = await self._take() or (await self._connect(), time.monotonic())
            self._used.add(connection)
            try:
                yield connection
            finally:
                self._used.discard(connection)
                await self._give_back(connection, made)

    async def aclose(self) -> None:
        """Close every connection, also those in use; harmless when done twice."""
        self._is_closed = True
        for connection in (*self._used, *(connection for connection, _ in self._idle)):
            await _close(connection)
        self._idle.clear()

    async def _take(self) -> tuple[Connection, float] | None:
        while self._idle:
            connection, made = self._idle.pop()
            if is_alive(connection) and time.monotonic() - made < _LONGEST_LIFE:
                return connection, made
            await _close(connection)
        return None

    async def _give_back(self, connection: Connection, made: float) -> None:
        is_idle = connection.info.transaction_status is TransactionStatus.IDLE
        if self._is_closed or connection.closed or not is_idle:
            await _close(connection)
        else:
            self._idle.append((connection, made))


def is_alive(connection: Connection) -> bool:
    """Whether nothing was heard of a connection that nobody uses: what a server says then is that it ends. Costs no
    round trip."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLRDHUP)
    return not poll.poll(0)


async def _close(connection: Connection) -> None:
    with suppress(psycopg.Error, OSError):
        await connection.close()
