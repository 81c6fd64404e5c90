"""`python -m benchmarks.walk list|export|replay FILE`: go through every letter of a database, and tell the memory
that this process took for it, as one JSON line. Started by families/letters.py."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from benchmarks.actors import acting
from benchmarks.harness import in_loop, rounded
from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.service import Service

_PAGE = 500


async def listed(service: Service) -> AsyncIterator[int]:
    """Page by page, as somebody would who leafs through all of them."""
    after = None
    while True:
        page = await service.letters(Query(), after=after, limit=_PAGE)
        yield len(page.letters)
        after = page.after
        if after is None:
            return


async def exported(service: Service) -> AsyncIterator[int]:
    null = os.open(os.devnull, os.O_WRONLY)
    async for lines in service.export(Query()):
        os.write(null, lines)
        yield lines.count(b"\n")
    os.close(null)


async def replayed(service: Service) -> AsyncIterator[int]:
    """Frozen, claimed, sent to the queue of the same file, confirmed."""
    sent: asyncio.Queue[int] = asyncio.Queue()
    replay = await service.replay(Query(), every=True, actor=acting("benchmark"))
    running = asyncio.create_task(service.run_replay(replay.id, progress=sent.put_nowait))
    running.add_done_callback(lambda _: sent.put_nowait(0))
    while count := await sent.get():
        yield count
    await running


class Watch:
    """Resident megabytes: at the start, at a tenth of the way, at the end, and the most there was."""

    def __init__(self, total: int) -> None:
        self.start = self.end = self.peak = resident()
        self.tenth: float | None = None
        self.done = 0
        self._total = total

    def saw(self, count: int) -> None:
        self.done += count
        self.end = resident()
        self.peak = max(self.peak, self.end)
        if self.tenth is None and self.done >= self._total / 10:
            self.tenth = self.end


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def highest() -> float:
    """The most this process ever had, in MB. Not ru_maxrss: that begins with what its parent had when it forked."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


WAYS: dict[str, Callable[[Service], AsyncIterator[int]]] = {"list": listed, "export": exported, "replay": replayed}


async def walk(what: str, path: Path) -> dict[str, float]:
    async with Redrive(transport=f"sqlite:///{path}", settings=Settings()) as app:
        service = Service(app)
        total = await service.count(Query())
        await service.letters(Query())
        watch, began = Watch(total), time.perf_counter()
        async for count in WAYS[what](service):
            watch.saw(count)
        took = time.perf_counter() - began
    return {
        "start": rounded(watch.start),
        "tenth": rounded(watch.tenth or watch.start),
        "end": rounded(watch.end),
        "peak": rounded(max(watch.peak, highest())),
        "growth": rounded(max(watch.peak, highest()) - watch.start),
        "letters": watch.done,
        "seconds": rounded(took),
        "letters_a_second": rounded(watch.done / took),
    }


if __name__ == "__main__":
    print(msgspec.json.encode(in_loop(walk(sys.argv[1], Path(sys.argv[2])))).decode())
