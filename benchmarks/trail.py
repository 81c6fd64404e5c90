"""The audit trail: verifying a million lines, and ten processes that write one chain.

python -m benchmarks.trail verify 1000000
python -m benchmarks.trail write 10 200 [store URL]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from redrive.access.actors import Actor, Role, Via
from redrive.access.trail import Head, Phase, body_of, chained, said
from redrive.access.trail_store import KIND, Trail
from redrive.clock import SystemClock
from redrive.registry import open_store
from redrive.stores.sqlite import SqliteStore

EVE = Actor(id="tok1", name="eve", role=Role.OPERATOR, via=Via.TOKEN)


async def verify(lines: int, in_a_block: int) -> None:
    """Write so many lines straight into a SQLite file, and verify them."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(f"sqlite:///{Path(folder) / 'trail.db'}")
        _fill(Path(folder) / "trail.db", lines, in_a_block)
        trail = Trail(store.documents, SystemClock())
        began = time.perf_counter()
        verdict = await trail.verify()
        took = time.perf_counter() - began
        began = time.perf_counter()
        middle = trail.lines(before=lines // 2)
        page = [await anext(middle) for _ in range(50)]
        paged = time.perf_counter() - began
        await store.aclose()
    assert verdict.is_whole
    assert verdict.lines == lines
    print(f"{lines:,} lines, {in_a_block} a block: verified in {took:.1f} s; {len(page)} read in {paged * 1e3:.0f} ms")


def _fill(file: Path, lines: int, in_a_block: int) -> None:
    import sqlite3

    import msgspec

    at, head = SystemClock().now().isoformat(), Head()
    with sqlite3.connect(file) as connection:
        while head.seq < lines:
            some = [
                said(EVE, "purge", Phase.DONE, at=at, detail=f"12 letters of {number}", about=[f"letter-{number}"])
                for number in range(min(in_a_block, lines - head.seq))
            ]
            first = head.seq + 1
            written, head = chained(head, some)
            body = msgspec.json.encode(body_of(written)).decode()
            connection.execute("INSERT INTO documents VALUES (?, ?, 1, ?)", (KIND, f"{first:015}", body))


async def write(writers: int, each: int, url: str | None) -> None:
    """So many processes, each with five acts at a time, on one chain."""
    with tempfile.TemporaryDirectory() as folder:
        url = url or f"sqlite:///{Path(folder) / 'trail.db'}"
        await open_store(url).aclose()
        began = time.perf_counter()
        ends = await asyncio.gather(*(_writer(url, f"w{number}", each, began) for number in range(writers)))
        took = time.perf_counter() - began
        store = open_store(url)
        verdict = await Trail(store.documents, SystemClock()).verify()
        await store.aclose()
    assert verdict.is_whole
    print(f"{writers} × {each} lines: {writers * each / took:,.0f} lines/s, first done after {min(ends):.1f} s")
    print(f"last after {max(ends):.1f} s; {verdict.lines:,} lines, whole")


async def _writer(url: str, name: str, each: int, began: float) -> float:
    arguments = ("-m", "tests.faults.trail_writer", url, name, str(each))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
    return time.perf_counter() - began


if __name__ == "__main__":
    if sys.argv[1] == "verify":
        for size in (1, 20):
            asyncio.run(verify(int(sys.argv[2]), size))
    else:
        asyncio.run(write(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None))
