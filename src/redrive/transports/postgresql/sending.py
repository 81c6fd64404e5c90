"""Puts messages into the queue: one statement for a few, COPY for many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg

from redrive.clock import Clock
from redrive.drivers.postgresql.link import Link, copying, rows
from redrive.drivers.postgresql.pool import Connection
from redrive.errors import TransportUnavailable
from redrive.model import Message
from redrive.transports.base import ACCEPTED, SendResult, refused
from redrive.transports.postgresql.copying import packed
from redrive.transports.postgresql.rows import Row, as_bytes, row

PACKAGE = "redrive.transports.postgresql"
_COPY_FROM = 100  # messages: fewer are sent by one statement, which is one round trip
_MOST, _LARGEST = 5000, 16 << 20  # messages and bytes of one statement
_MICROSECOND = timedelta(microseconds=1)


class Sending:
    """Sends to one source at a time, each chunk in one transaction."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock

    async def send(self, source: str, messages: Sequence[Message]) -> list[SendResult]:
        """An answer for each. One that no column can hold is refused, and those beside it are sent."""
        answers: list[SendResult] = [ACCEPTED] * len(messages)
        fresh: list[tuple[int, Row]] = []
        back: list[tuple[int, Row]] = []
        for number, message in enumerate(messages):
            try:
                made = row(message, 0 if message.not_before is None else delay_of(self._clock, message))
            except (ValueError, OverflowError) as error:
                answers[number] = refused(f"PostgreSQL cannot hold it: {error}")
            else:
                (back if message.headers and message.was_sent_back else fresh).append((number, made))
        for some, is_back in ((fresh, False), (back, True)):
            for chunk in _chunks(some):
                for number, why in (await self._add(source, is_back, chunk)).items():
                    answers[number] = refused(why)
        return answers

    async def _add(self, source: str, back: bool, chunk: Sequence[tuple[int, Row]]) -> dict[int, str]:
        """Add them; where the server will not have one of them, each by itself. Returns why some are refused."""
        try:
            await self._put(as_bytes(source), back, [made for _, made in chunk])
        except ValueError as error:
            if len(chunk) == 1:
                return {chunk[0][0]: str(error)}
            found: dict[int, str] = {}
            for item in chunk:
                found |= await self._add(source, back, [item])
            return found
        return {}

    async def _put(self, source: bytes, back: bool, made: Sequence[Row]) -> None:
        if len(made) >= _COPY_FROM and not back:
            try:
                await self._link.on_connection(lambda connection: self._copy(connection, source, made))
            except TransportUnavailable as error:
                if not isinstance(error.__cause__, psycopg.errors.UniqueViolation):
                    raise
            else:
                return
        await self._link.fetch(self._link.sql(PACKAGE, "send"), arguments(source, back, made))

    async def _copy(self, connection: Connection, source: bytes, made: Sequence[Row]) -> None:
        """In one transaction of four round trips: they are there together, and who waits hears of it then."""
        sql = self._link.sql
        async with connection.pipeline():
            await connection.execute("BEGIN")
            where = await rows(connection, sql(PACKAGE, "where_to"), (source,))
        if not where:  # nobody has sent to it before
            await rows(connection, sql(PACKAGE, "source"), (source,))
            where = await rows(connection, sql(PACKAGE, "where_to"), (source,))
        [(no, fair, now)] = where
        async with copying(connection, sql(PACKAGE, "copy")) as into:
            await into.write(packed(no, fair, now, made))
        names = {item[5] or 0: item[6] or b"" for item in made} if fair else {}
        async with connection.pipeline():
            await connection.execute(sql(PACKAGE, "sent").encode(), (no, fair, list(names), list(names.values())))
            await connection.execute("COMMIT")


def arguments(source: bytes, back: bool, made: Sequence[Row]) -> list[Any]:
    """The rows as `queue_send` takes them. Of an id that is sent back twice, the last one counts."""
    if back:
        made = list({item[0]: item for item in made}.values())
    return [source, back, *map(list, zip(*made, strict=True))]


def delay_of(clock: Clock, message: Message) -> int:
    """Microseconds that it is to wait."""
    if message.not_before is None:
        return 0
    return max(0, -(-(message.not_before - clock.now()) // _MICROSECOND))


def _chunks(made: Sequence[tuple[int, Row]]) -> Iterator[list[tuple[int, Row]]]:
    chunk: list[tuple[int, Row]] = []
    size = 0
    for item in made:
        length = len(item[1][8])
        if chunk and (len(chunk) == _MOST or size + length > _LARGEST):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk
