"""Thousands of tickets, workers killed wherever they are: nothing is lost, and what is repeated is counted.

REDRIVE_ACCOUNTING=100000 makes it as many.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

from redrive.testing.waiting import until
from tests.systems.tickets.conftest import MakesWorld
from tests.systems.tickets.world import World

ROOT = Path(__file__).parents[3]
TICKETS = int(os.environ.get("REDRIVE_ACCOUNTING", "3000"))
KILLS = 2 if TICKETS <= 10_000 else 10


async def test_nothing_is_lost_though_workers_are_killed(make_world: MakesWorld, tmp_path: Path) -> None:
    world = make_world()
    names = [f"never-{n}" if n % 50 == 0 else f"ok-{n}" for n in range(TICKETS)]
    world.send(*names)
    done, chance = tmp_path / "done", random.Random(7)
    seconds = 0.002 if TICKETS <= 10_000 else 0.0
    for _ in range(KILLS):
        process = await _start(world, done, seconds)
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 60)
        before = _size(done)
        await until(lambda: _size(done) != before or process.returncode is not None, what="it has begun")  # noqa: B023
        await asyncio.sleep(chance.uniform(0, 0.3))
        if process.returncode is None:
            process.kill()
        await process.wait()
    last = await _start(world, done, 0.0)
    assert await asyncio.wait_for(last.wait(), 300) == 0
    handled = Counter(done.read_text().split())
    graves = Counter(json.loads(one.value())["ticket_id"] for one in world.graves())
    await world.collected()
    kept = {one["ticket_id"] for one in world.documents.find({}, {"ticket_id": 1})}
    sent = {world.id(name) for name in names}
    assert handled.keys() == {id for id in sent if ":ok-" in id}, "lost, or come from nowhere"
    assert graves.keys() == kept == {id for id in sent if ":never-" in id}
    assert max((handled + graves).values()) <= 1 + KILLS, "repeated without a kill"
    assert list(world.redis.scan_iter(f"ticket:retry_count:{world.name}:*")) == []


async def _start(world: World, done: Path, seconds: float) -> asyncio.subprocess.Process:
    said = {"tickets": world.said, "done": str(done), "seconds": seconds}
    words = ("-m", "tests.systems.tickets.worker_process", json.dumps(said))
    return await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
