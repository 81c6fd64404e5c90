"""A handler's work and its ack in one transaction: what it writes is there exactly when its message is done with."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Protocol

import psycopg

from redrive.drivers.postgresql.errors import why
from redrive.drivers.postgresql.pool import Connection, Pool
from redrive.errors import NotNow, TransportUnavailable
from redrive.transports.base import Delivery


class Acks(Protocol):
    """The acks of a queue that are a part of the transactions of handlers."""

    async def acknowledge(self, connection: Connection, delivery: Delivery) -> bool:
        """Delete the message in the transaction of that connection; whether its lease was still held."""
        ...

    async def exists(self, delivery: Delivery) -> bool:
        """Whether the message is still there under its lease."""
        ...

    def was_not_committed(self, delivery: Delivery) -> None:
        """What was acknowledged is not, after all."""
        ...


class Work:
    """`async with work as connection:` what is written in it is committed with the ack of its message, or not at all.

    A cancellation that comes while it commits waits for the answer: what is committed has succeeded. If the answer is
    lost with the connection, the queue is asked whether the message is gone.
    """

    def __init__(self, pool: Pool, delivery: Delivery, acks: Acks) -> None:
        self.delivery = delivery
        self._pool = pool
        self._acks = acks
        self._stack = AsyncExitStack()
        self._connection: Connection | None = None
        self._transaction: Any = None

    async def __aenter__(self) -> Connection:
        try:
            self._connection = await self._stack.enter_async_context(self._pool.connection())
            self._transaction = self._connection.transaction()
            await self._transaction.__aenter__()
        except (psycopg.OperationalError, OSError) as error:
            await self._stack.aclose()
            raise NotNow(f"no transaction could be begun: {why(error)}") from error
        except BaseException:
            await self._stack.aclose()
            raise
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        ending = asyncio.ensure_future(self._commit() if error is None else self._roll_back(error))
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                continue  # its answer is what counts
            except BaseException:
                break
        ending.result()
        return False

    async def _roll_back(self, error: BaseException) -> None:
        """Undo what was written; what went wrong is told by whoever raised it."""
        try:
            await self._rolled_back(error)
        finally:
            await self._stack.aclose()

    async def _commit(self) -> None:
        try:
            if not await self._carried_out():
                raise NotNow("its lease was lost: another worker has it, and what was written is rolled back")
        finally:
            await self._stack.aclose()

    async def _carried_out(self) -> bool:
        """Acknowledge and commit; whether the lease was still held."""
        try:
            if not await self._acknowledged():
                return False
            await self._committed()
        except BaseException:
            self._acks.was_not_committed(self.delivery)
            raise
        return True

    async def _acknowledged(self) -> bool:
        assert self._connection is not None
        try:
            held = await self._acks.acknowledge(self._connection, self.delivery)
        except BaseException as error:
            await self._rolled_back(error)
            raise
        if not held:
            await self._rolled_back(NotNow())
        return held

    async def _committed(self) -> None:
        assert self._connection is not None
        try:
            await self._transaction.__aexit__(None, None, None)
        except (psycopg.OperationalError, OSError) as error:
            if not self._connection.closed:  # a refusal of the server: it has rolled back
                raise
            await self._find_out(error)

    async def _rolled_back(self, error: BaseException) -> None:
        with suppress(Exception):  # a connection that is lost rolls back by itself
            await self._transaction.__aexit__(type(error), error, None)

    async def _find_out(self, error: BaseException) -> None:
        """The connection was lost while it committed: if the message is gone, it was done."""
        try:
            exists = await self._acks.exists(self.delivery)
        except TransportUnavailable as away:
            raise NotNow(f"it is not known whether its work was committed: {away}") from error
        if exists:
            raise error
