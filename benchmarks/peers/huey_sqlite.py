"""huey on SQLite, as fast as it goes without giving up what is compared.

WAL and `fsync=True` (synchronous=FULL): what it accepted survives a power cut, as with us. No results are stored.
Its consumer's worker is a loop of `dequeue` and `execute`; we run that loop itself, without the scheduler beside it,
in one thread: more threads only wait for one another's exclusive lock. `dequeue` deletes before the task runs, so a
crash loses it: huey promises less here than Redrive does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import needed

NAME = "huey"


class Huey:
    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._huey: Any = needed("huey").SqliteHuey(
            filename=str(directory / "huey.db"), fsync=durable, journal_mode="wal", cache_mb=16, results=False
        )

        @self._huey.task()  # type: ignore[untyped-decorator]
        def handle(body: bytes) -> None:
            return None

        self.put: Any = handle

    def drain(self, most: int, seconds: float) -> int:
        """How many were handled in that time."""
        done, end = 0, time.perf_counter() + seconds
        while done < most and time.perf_counter() < end:
            task = self._huey.dequeue()
            if task is None:
                break
            self._huey.execute(task)
            done += 1
        return done

    def close(self) -> None:
        self._huey.storage.close()


def fill(directory: Path, bodies: Sequence[bytes]) -> None:
    """Before the clock starts, so without waiting for the disk."""
    filler = Huey(directory, durable=False)
    for body in bodies:
        filler.put(body)
    filler.close()
