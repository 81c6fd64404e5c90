"""The embedded queue: one table in the file that also holds the letters. Durable when `send` returns."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from redrive.clock import Clock, Steady, microseconds, moment
from redrive.drivers.sqlite.database import Work, clauses, close_database, open_database
from redrive.model import Done, Failure, Headers, Message, MessageId, Release, Retry
from redrive.transports.base import (
    ACCEPTED,
    Delivery,
    Depth,
    Features,
    Listing,
    Paused,
    Queued,
    QueueState,
    SendResult,
    Settlement,
    number_after,
    refused,
    translated_errors,
)
from redrive.untrusted import UNREADABLE

_SQL = clauses(__package__, "queue")
T = TypeVar("T")
_POLL = 0.05  # how soon a message of another process is seen
_LONGEST_LEASE = timedelta(hours=1)
_LEASE_BITS = 32  # of a lease; the bits above them say whose it is


class Rest(msgspec.Struct, array_like=True, frozen=True):
    """The fields that few messages have; written only where there are some."""

    headers: Headers = ()
    key: bytes | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    origin: str = ""


_NO_REST = Rest()
_encode = msgspec.msgpack.Encoder().encode
_NO_FAILURES = _encode(())  # unlike NULL it says that a row is meant to wait (heal_ready in queue.sql)
_decode_rest = msgspec.msgpack.Decoder(Rest).decode
_decode_failures = msgspec.msgpack.Decoder(tuple[Failure, ...]).decode


class KeptPause(msgspec.Struct, frozen=True):
    """A pause as the file keeps it."""

    paused: Paused
    ends: int | None  # microseconds


_decode_pause = msgspec.json.Decoder(KeptPause).decode
Token = tuple[int, int]  # row, lease
Row = tuple[Any, ...]
Leased = tuple[str, int, list[Row]]  # source, lease, what it holds


class SqliteTransport:
    """Leases messages with a deadline: what a dead worker held comes back by itself."""

    features = Features(
        durable=True,
        native_delay=True,
        counts_attempts=True,
        keeps_history=True,
        ordered_by="source",
        idempotent_send=True,
        shared=True,
        delays_sends=True,
    )

    def __init__(self, url: str, *, clock: Clock, lease: timedelta) -> None:
        self.url = url
        self._clock = clock
        self._steady = Steady(clock)
        self._lease = int(min(lease, _LONGEST_LEASE).total_seconds() * 1e6)
        self._sent: dict[str, asyncio.Event] = {}
        with translated_errors():
            self._database = open_database(url)
        self._holder = secrets.randbits(30)
        self._healed = False
        self._busy: set[str] = set()  # sources whose last batch was full: more is waiting, without having to look
        self._closed = False

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        """Lease messages, the most urgent first, then the longest visible."""
        event = self._sent.setdefault(source, asyncio.Event())
        while True:
            event.clear()
            if (source in self._busy or await self._has_ready(source)) and (taken := await self._take(source, limit)):
                (self._busy.add if len(taken) == limit else self._busy.discard)(source)
                return taken
            self._busy.discard(source)
            await self._clock.wait(event, _POLL)

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        def work(connection: sqlite3.Connection) -> list[Delivery]:
            return _lost(connection, _SQL["extend"], deliveries, until=self._now() + self._lease)

        return await self._write(work)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        def work(connection: sqlite3.Connection) -> list[Delivery]:
            return self._settle(connection, settlements)

        lost = await self._write(work)
        self._wake(
            settlement.delivery.message.source for settlement in settlements if not isinstance(settlement.outcome, Done)
        )
        return lost

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        """In one transaction; where that has no place for one of them, each in its own."""
        now = self._now()
        try:
            rows: list[Row] = []
            back: list[Row] = []
            for message in messages:
                (back if message.was_sent_back else rows).append(_row(message, self._visible_at(message, now)))

            def work(connection: sqlite3.Connection) -> None:
                connection.executemany(_SQL["send"], rows)
                connection.executemany(_SQL["send_back"], back)

            await self._write(work)
        except (OverflowError, ValueError) as error:
            if len(messages) == 1:
                return [refused(f"SQLite cannot hold it: {error}")]
            return [result for message in messages for result in await self.send([message])]
        self._wake(message.source for message in messages)
        return [ACCEPTED] * len(messages)

    async def find(
        self,
        source: str,
        *,
        ids: Collection[MessageId] | None = None,
        containing: bytes | None = None,
        since: datetime | None = None,
        limit: int = 1000,
    ) -> Sequence[Message]:
        arguments = {
            "source": source,
            "ids": None if ids is None else msgspec.json.encode(list(ids)).decode(),
            "containing": containing,
            "since": None if since is None else microseconds(since),
            "limit": limit,
        }
        rows = await self._read(lambda connection: connection.execute(_SQL["find"], arguments).fetchall())
        return [delivery.message for delivery in _deliveries(source, 0, rows)]

    @property
    def holder(self) -> str:
        return f"{self._holder:08x}"

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        now = self._now()
        arguments = {"source": source, "state": state, "after": number_after(after), "now": now, "limit": limit + 1}
        rows = await self._read(lambda connection: connection.execute(_SQL["listing"], arguments).fetchall())
        more = str(rows[limit - 1][0]) if len(rows) > limit else None
        return Listing(tuple(self._stand(source, row, now) for row in rows[:limit]), more)

    def _stand(self, source: str, row: Row, now: int) -> Queued:
        *held, visible_at, lease = row
        delivery = _readable(source, 0, tuple(held))
        if visible_at <= now:
            return Queued(delivery.message, QueueState.READY, delivery.failures)
        until = self._clock.now() + timedelta(microseconds=visible_at - now)
        if lease is None:
            return Queued(delivery.message, QueueState.DELAYED, delivery.failures, until)
        return Queued(delivery.message, QueueState.LEASED, delivery.failures, until, f"{lease >> _LEASE_BITS:08x}")

    async def pause(self, paused: Paused) -> Paused:
        now = self._now()
        span = None if paused.until is None else microseconds(paused.until) - microseconds(self._clock.now())
        body = msgspec.json.encode(KeptPause(paused, None if span is None else now + span)).decode()

        def work(connection: sqlite3.Connection) -> Paused:
            connection.execute(_SQL["pause"], {"source": paused.source, "body": body, "now": now})
            [(kept,)] = connection.execute(_SQL["pauses"], {"source": paused.source, "now": -1})
            return _decode_pause(kept).paused

        return await self._write(work)

    async def resume(self, source: str) -> Paused | None:
        arguments = {"source": source, "now": self._now()}

        def work(connection: sqlite3.Connection) -> Paused | None:
            kept = connection.execute(_SQL["pauses"], arguments).fetchall()
            connection.execute(_SQL["resume"], {"source": source})
            return _decode_pause(kept[0][0]).paused if kept else None

        ended = await self._write(work)
        self._wake([source])
        return ended

    async def pauses(self) -> Sequence[Paused]:
        arguments = {"source": None, "now": self._now()}
        rows = await self._read(lambda connection: connection.execute(_SQL["pauses"], arguments).fetchall())
        return [_decode_pause(body).paused for (body,) in rows]

    async def depths(self) -> dict[str, Depth]:
        rows = await self._read(lambda c: c.execute(_SQL["depths"], {"now": self._now()}).fetchall())
        return {source: Depth(ready, delayed, leased) for source, ready, delayed, leased in rows}

    async def check(self) -> None:
        """Check by writing: a read can succeed where a full disk or a lock would not."""
        statement = "UPDATE queue SET seq = seq WHERE seq = -1"
        await self._write(lambda connection: connection.execute(statement).rowcount)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(close_database, self._database)

    def _now(self) -> int:
        return self._steady.micros()

    def _visible_at(self, message: Message, now: int) -> int:
        if message.not_before is None:
            return now
        return now + max(0, microseconds(message.not_before) - microseconds(self._clock.now()))

    async def _has_ready(self, source: str) -> bool:
        if not self._healed:
            await self._write(self._heal)
            self._healed = True
        arguments = {"source": source, "now": self._now()}
        return await self._read(lambda c: c.execute(_SQL["priorities"], arguments).fetchone() is not None)

    def _heal(self, connection: sqlite3.Connection) -> None:
        now = self._now()
        connection.execute(_SQL["heal_ready"], {"now": now})
        connection.execute(_SQL["heal_leases"], {"until": now + int(_LONGEST_LEASE.total_seconds() * 1e6)})

    async def _take(self, source: str, limit: int) -> Sequence[Delivery]:
        """Lease messages in the writer, and read them into deliveries here: the writer is what everybody waits for."""
        future = self._database.submit(lambda connection: self._lease_ready(connection, source, limit))
        try:
            with translated_errors():
                return _deliveries(*await asyncio.shield(asyncio.wrap_future(future)))
        except asyncio.CancelledError:
            future.add_done_callback(self._give_back)  # nobody is left to work on what was just leased
            raise

    def _lease_ready(self, connection: sqlite3.Connection, source: str, limit: int) -> Leased:
        now, lease = self._now(), self._holder << _LEASE_BITS | secrets.randbits(_LEASE_BITS)
        rows: list[Row] = []
        for (priority,) in connection.execute(_SQL["priorities"], {"source": source, "now": now}).fetchall():
            arguments = {"source": source, "priority": priority, "now": now, "limit": limit - len(rows)}
            rows += connection.execute(_SQL["ready"], arguments)
            if len(rows) == limit:
                break
        seqs = _json(row[0] for row in rows)
        connection.execute(_SQL["lease"], {"until": now + self._lease, "lease": lease, "seqs": seqs})
        return source, lease, rows

    def _give_back(self, taken: Future[Leased]) -> None:
        if not taken.cancelled() and taken.exception() is None:
            released = [Settlement(delivery, Release()) for delivery in _deliveries(*taken.result())]
            self._database.submit(lambda connection: self._settle(connection, released))

    def _settle(self, connection: sqlite3.Connection, settlements: Sequence[Settlement]) -> list[Delivery]:
        done = [settlement.delivery for settlement in settlements if isinstance(settlement.outcome, Done)]
        others = [settlement for settlement in settlements if not isinstance(settlement.outcome, Done)]
        lost = [settlement.delivery for settlement in others if not self._put_back(connection, settlement)]
        return lost + _lost(connection, _SQL["done"], done)

    def _put_back(self, connection: sqlite3.Connection, settlement: Settlement) -> bool:
        """Put a message back into the queue; returns whether it was still ours."""
        outcome, (seq, lease) = settlement.outcome, settlement.delivery.token
        assert not isinstance(outcome, Done)
        statement, span = ("retry", outcome.after) if isinstance(outcome, Retry) else ("release", outcome.pause)
        at = self._now() + int(span.total_seconds() * 1e6)
        arguments = {"seq": seq, "lease": lease, "at": at, "failures": _history(settlement)}
        return connection.execute(_SQL[statement], arguments).rowcount > 0

    def _wake(self, sources: Iterable[str]) -> None:
        for source in set(sources):
            if source in self._sent:
                self._sent[source].set()

    async def _write(self, work: Work[T]) -> T:
        with translated_errors():
            return await self._database.write(work)

    async def _read(self, work: Work[T]) -> T:
        with translated_errors():
            return await self._database.read(work)


def _lost(
    connection: sqlite3.Connection, statement: str, deliveries: Sequence[Delivery], **more: int
) -> list[Delivery]:
    """Run the statement for each lease among them; returns the deliveries that were no longer ours.

    Two statements that answer in one step are faster than one that returns every row: each step of SQLite hands
    the interpreter to whatever else runs in the process.
    """
    by_lease: dict[int, list[int]] = defaultdict(list)
    for delivery in deliveries:
        by_lease[delivery.token[1]].append(delivery.token[0])
    lost: set[Token] = set()
    for lease, seqs in by_lease.items():
        arguments = {"lease": lease, "seqs": _json(seqs), **more}
        lost.update((seq, lease) for (seq,) in connection.execute(_SQL["lost"], arguments))
        connection.execute(statement, arguments)
    return [delivery for delivery in deliveries if delivery.token in lost] if lost else []


def _row(message: Message, visible_at: int) -> Row:
    rest = Rest(message.headers, message.key, message.tenant, message.correlation_id, message.origin)
    return (
        message.source,
        message.id,
        message.priority,
        visible_at,
        message.attempt - 1,
        microseconds(message.enqueued_at),
        None if message.expires_at is None else microseconds(message.expires_at),
        message.body,
        None if rest == _NO_REST else _encode(rest),
        None if message.not_before is None else _NO_FAILURES,
    )


def _deliveries(source: str, lease: int, rows: Iterable[Row]) -> list[Delivery]:
    return [_readable(source, lease, row) for row in rows]


def _readable(source: str, lease: int, row: Row) -> Delivery:
    """The delivery of a row; one that somebody else wrote, or broke, is marked, and holds up no other."""
    try:
        return _delivery(source, lease, row)
    except UNREADABLE as error:
        seq, lapsed, id, _, attempt, _, _, body, *_ = row
        message = Message(str(id), source, body if isinstance(body, bytes) else b"", moment(0), attempt=attempt + 1)
        why = f"to unpack its row failed: {type(error).__name__}: {error}"
        return Delivery(message, (seq, lease), (), bool(lapsed), unreadable=why)


def _delivery(source: str, lease: int, row: Row) -> Delivery:
    seq, lapsed, id, priority, attempt, enqueued_at, expires_at, body, rest, failures = row
    more = _NO_REST if rest is None else _decode_rest(rest)
    message = Message(
        id=id,
        source=source,
        body=body,
        enqueued_at=moment(enqueued_at),
        headers=more.headers,
        key=more.key,
        tenant=more.tenant,
        correlation_id=more.correlation_id,
        attempt=attempt + 1,
        priority=priority,
        expires_at=None if expires_at is None else moment(expires_at),
        origin=more.origin,
    )
    history = () if failures is None else _decode_failures(failures)
    return Delivery(message, (seq, lease), history, bool(lapsed))


def _history(settlement: Settlement) -> bytes | None:
    history = settlement.delivery.failures
    if settlement.failure is not None:
        history = (*history, settlement.failure)
    return _encode(history) if history else None


def _json(numbers: Iterable[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> SqliteTransport:
    """`sqlite:///file.db`."""
    return SqliteTransport(url, clock=clock, lease=lease)
