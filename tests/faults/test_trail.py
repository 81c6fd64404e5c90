"""Several processes write one trail, one of them is killed: what was told is there, and the chain is whole."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from redrive.access.trail_store import Trail
from redrive.clock import SystemClock
from redrive.registry import open_store

pytestmark = pytest.mark.asyncio
_EACH = 60


async def test_processes_that_write_at_once_and_one_that_is_killed_leave_one_whole_chain(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'redrive.db'}"
    await open_store(url).aclose()
    doomed = await _writer(url, "doomed", 100_000)
    assert doomed.stdout is not None
    told = [int(await doomed.stdout.readline()) for _ in range(20)]
    others = [await _writer(url, name, _EACH) for name in ("a", "b")]
    for other in others:
        out, _ = await other.communicate()
        assert other.returncode == 0
        places = [int(line) for line in out.split()]
        assert len(places) == _EACH
        told += places
    doomed.send_signal(signal.SIGKILL)  # it wrote all the time, so the others had to get in between
    told += [int(line) for line in (await doomed.stdout.read()).splitlines() if line]
    await doomed.wait()
    store = open_store(url)
    trail = Trail(store.documents, SystemClock())
    verdict = await trail.verify()
    written = {line.seq async for line in trail.lines()}
    await store.aclose()
    assert verdict.is_whole
    assert len(told) == len(set(told)), "no two have one place"
    assert written >= set(told), "what was told is there"
    assert written == set(range(1, verdict.head.seq + 1))


async def _writer(url: str, name: str, count: int) -> asyncio.subprocess.Process:
    arguments = ("-m", "tests.faults.trail_writer", url, name, str(count))
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
