"""How often a message of Kafka was tried, kept where it outlives its worker: Kafka itself counts nothing.

Counts are written as they shall be and not added to, so that a write whose answer was lost can simply be repeated.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from redrive.clock import SystemClock, microseconds
from redrive.drivers.sqlite.database import close_database, open_database
from redrive.errors import ConfigError, MissingExtra, TransportUnavailable, Unavailable

TTL = timedelta(days=7)
"""As long as topics usually keep their messages."""
PATTERN = "redrive:kafka:attempts:{}"
FORGETFUL = (
    "attempts are counted in memory: a restart forgets them, so that a message may be tried more often than its policy "
    "says, and one that takes its worker down is never buried. Count them in redis://… or sqlite:///…: by the "
    "option `counters` of its URL, or where a system is told to count them"
)
Counts = Mapping[str, int]


class Counters(Protocol):
    """Keeps the counts. Raises Unavailable when it cannot answer now: nothing is then delivered, settled or buried."""

    durable: bool

    @property
    def is_empty(self) -> bool:
        """Whether surely nothing is counted, so that asking can be spared."""
        ...

    async def get(self, names: Sequence[str]) -> Sequence[int]:
        """Their counts; 0 for those that have none."""
        ...

    async def put(self, counts: Counts) -> None:
        """Write their counts; a count of 0 is forgotten."""
        ...

    async def aclose(self) -> None:
        """Close what it holds open."""
        ...


class MemoryCounters:
    """Counts in memory, forgotten with the process."""

    durable = False

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        return not self._counts

    async def get(self, names: Sequence[str]) -> Sequence[int]:
        return [self._counts.get(name, 0) for name in names]

    async def put(self, counts: Counts) -> None:
        for name, number in counts.items():
            if number:
                self._counts[name] = number
            else:
                self._counts.pop(name, None)

    async def aclose(self) -> None:
        return None


_TABLE = "CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, count INTEGER, at INTEGER) WITHOUT ROWID"
_GET = "SELECT name, count FROM counters WHERE name IN (SELECT value FROM json_each(?)) AND at > ?"
_PUT = "INSERT OR REPLACE INTO counters VALUES (?, ?, ?)"
_DROP = "DELETE FROM counters WHERE name IN (SELECT value FROM json_each(?))"
_EXPIRE = "DELETE FROM counters WHERE at <= ?"


class SqliteCounters:
    """Counts in a SQLite file, for the workers of one machine."""

    durable = True
    is_empty = False

    def __init__(self, url: str, ttl: timedelta = TTL) -> None:
        self._database = open_database(url)
        self._ttl = int(ttl.total_seconds() * 1e6)
        self._clock = SystemClock()
        self._made = False

    async def get(self, names: Sequence[str]) -> Sequence[int]:
        await self._make()
        asked, oldest = _json(names), self._oldest()
        found = dict(await self._database.read(lambda connection: connection.execute(_GET, (asked, oldest)).fetchall()))
        return [found.get(name, 0) for name in names]

    async def put(self, counts: Counts) -> None:
        await self._make()
        now = microseconds(self._clock.now())
        kept = [(name, number, now) for name, number in counts.items() if number]
        gone = _json([name for name, number in counts.items() if not number])

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(_PUT, kept)
            connection.execute(_DROP, (gone,))

        await self._database.write(work)

    async def aclose(self) -> None:
        await asyncio.to_thread(close_database, self._database)

    async def _make(self) -> None:
        if self._made:
            return

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_TABLE)
            connection.execute(_EXPIRE, (self._oldest(),))

        await self._database.write(work)
        self._made = True

    def _oldest(self) -> int:
        return microseconds(self._clock.now()) - self._ttl


class RedisCounters:
    """Counts in Redis, for workers anywhere: one key for each message that has failed."""

    durable = True
    is_empty = False

    def __init__(self, url: str, *, pattern: str = PATTERN, ttl: timedelta = TTL) -> None:
        from redrive.drivers.redis import Link  # only where it is used

        self._link: Any = Link(url, unavailable=TransportUnavailable)
        self._pattern = pattern
        self._ttl = str(int(ttl.total_seconds()))

    async def get(self, names: Sequence[str]) -> Sequence[int]:
        if not names:
            return []
        keys = [self._key(name) for name in names]
        if self._link.address.cluster:
            answers = await self._link.commands([("GET", key) for key in keys])
        else:
            answers = await self._link.command("MGET", *keys)
        return [_count(answer) for answer in answers]

    async def put(self, counts: Counts) -> None:
        await self._link.commands([self._command(name, number) for name, number in counts.items()])

    async def aclose(self) -> None:
        await self._link.aclose()

    def _command(self, name: str, number: int) -> tuple[str, ...]:
        key = self._key(name)
        return ("SET", key, str(number), "EX", self._ttl) if number else ("DEL", key)

    def _key(self, name: str) -> str:
        return self._pattern.replace("{}", name)


def _count(answer: bytes | None) -> int:
    """The count in that value; 0 if somebody else wrote something else there."""
    return int(answer) if answer is not None and answer.isdigit() and len(answer) < 10 else 0


def _json(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode()


def open_counters(url: str, *, pattern: str = PATTERN) -> Counters:
    """`memory://`, `sqlite:///file.db` or `redis://host/0`; in Redis, under keys of that pattern."""
    scheme, _, _ = url.partition("://")
    try:
        if scheme == "memory":
            return MemoryCounters()
        if scheme == "sqlite":
            return SqliteCounters(url)
        if scheme in ("redis", "rediss", "redis+cluster", "rediss+cluster"):
            return RedisCounters(url, pattern=pattern)
    except MissingExtra:
        raise
    except Unavailable as error:
        raise TransportUnavailable(error.name, error.why) from error
    raise ConfigError(f"attempts cannot be counted in {scheme}://…: it is memory://, sqlite:/// or redis://")
