"""persist-queue on SQLite, in each of the three ways it can be consumed. All are WAL and synchronous=FULL.

each        `SQLiteQueue`, auto-commit: `get` selects and deletes in one commit. A crash in the handler loses it.
ack         `SQLiteAckQueue`: `get` marks, `ack` marks again, two commits. `next_in_order` spares it the scan over what
            is acked already, and acking by id the search in its cache. The one that promises what Redrive does.
checkpoint  `SQLiteQueue(auto_commit=False)`: `get` only moves a cursor in memory, `task_done` deletes all up to it. One
            reader, strictly in order, and no message can be acked, retried or released by itself.

`put` is one commit for each message in all of them: there is no bulk `put`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import needed

NAME = "persist-queue"


class Persist:
    """One queue of it; threads share it as its documentation says."""

    def __init__(self, directory: Path, *, way: str = "each", batch: int = 1) -> None:
        package = needed("persistqueue")
        self._way, self._batch = way, batch
        kind = package.SQLiteAckQueue if way == "ack" else package.SQLiteQueue
        options = {"auto_commit": False} if way == "checkpoint" else {}
        self.queue: Any = kind(str(directory), multithreading=True, **options)
        self._empty: Any = needed("persistqueue.exceptions").Empty
        self._last: int | None = None
        self.put: Any = self.queue.put

    def drain(self, most: int, seconds: float) -> int:
        """How many were handled in that time."""
        step = {"each": self._each, "ack": self._ack, "checkpoint": self._checkpoint}[self._way]
        done, end = 0, time.perf_counter() + seconds
        try:
            while done < most and time.perf_counter() < end:
                done += step()
        except self._empty:
            pass
        self.queue.task_done()
        return done

    def _each(self) -> int:
        handle(self.queue.get(block=False))
        return 1

    def _ack(self) -> int:
        in_order = {} if self._last is None else {"id": self._last, "next_in_order": True}
        item = self.queue.get(block=False, raw=True, **in_order)
        handle(item["data"])
        self._last = item["pqid"]
        self.queue.ack(id=self._last)
        return 1

    def _checkpoint(self) -> int:
        for _ in range(self._batch):
            handle(self.queue.get(block=False))
        self.queue.task_done()
        return self._batch

    def close(self) -> None:
        self.queue.close()


def handle(body: bytes) -> None:
    """The handler that does nothing."""


def fill(directory: Path, bodies: Sequence[bytes], way: str) -> None:
    """Before the clock starts, so without waiting for the disk."""
    filler = Persist(directory, way=way)
    filler.queue._putter.execute("PRAGMA synchronous=OFF")
    for body in bodies:
        filler.put(body)
    filler.close()
