"""Reads in threads of their own: quick ones and searches apart, each of which ends when nobody waits for it any more.

A search may look at a million rows. So searches have threads and connections of their own: whatever a page asks for by
an index never waits behind them. Whoever leaves, because a client has left, ends the statement itself: SQLite is
interrupted, and what had not begun does not begin.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_STEPS = 20_000  # of SQLite's machine between two looks at whether somebody still waits: about a millisecond


class Reading(Generic[T]):
    """One read, and whether somebody waits for it."""

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self.is_given_up = False

    def run(self, connection: sqlite3.Connection) -> T:
        """Do it on that connection, in the thread that has it."""
        with self._lock:
            self._connection = connection
        connection.set_progress_handler(lambda: self.is_given_up, _STEPS)  # between two statements nothing is running
        try:
            if self.is_given_up:
                raise sqlite3.OperationalError("interrupted")
            return self._work(connection)
        finally:
            with self._lock:
                self._connection = None
            connection.set_progress_handler(None, 0)

    def give_up(self) -> None:
        """End it, whether it runs or waits for its thread. Called in any thread."""
        with self._lock:
            self.is_given_up = True
            if self._connection is not None:
                self._connection.interrupt()


class Readers:
    """Threads that read, each with a connection of its own.

    run   does a reading on the connection of the thread it is called in, on a snapshot
    """

    def __init__(self, threads: int, name: str, run: Callable[[Reading[Any]], Any]) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._run = run

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it, and end it if whoever waits for it is cancelled."""
        reading = Reading(work)
        try:
            result: T = await asyncio.get_running_loop().run_in_executor(self._pool, self._run, reading)
        except asyncio.CancelledError:
            reading.give_up()
            raise
        return result

    def close(self) -> None:
        self._pool.shutdown()
