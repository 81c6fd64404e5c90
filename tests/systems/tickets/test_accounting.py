"""Thousands of tickets, workers killed wherever they are: nothing is lost, and what is repeated is what a killed worker
had done and could not commit any more.

REDRIVE_ACCOUNTING=100000 makes it as many, and prints the account.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from redrive.systems.tickets.settings import TicketSettings
from redrive.testing.waiting import until
from redrive.transports.kafka.reader import _AHEAD, _BATCH
from tests.systems.tickets.conftest import MakesWorld
from tests.systems.tickets.world import World

ROOT = Path(__file__).parents[3]
TICKETS = int(os.environ.get("REDRIVE_ACCOUNTING", "3000"))
KILLS = 2 if TICKETS <= 10_000 else 20
MOST_OPEN = 500
_LINE = 40  # bytes for each ticket that is done, about


class Finished(NamedTuple):
    """A ticket that was done, or is dead, and where it lay."""

    ticket: str
    partition: int
    offset: int


class Life:
    """What one worker did until it ended, and what was committed before it began."""

    def __init__(self, finished: Sequence[Finished], committed: dict[int, int]) -> None:
        self.finished = finished
        self.committed = committed

    def may_repeat(self, one: Finished) -> bool:
        return one.offset >= self.committed.get(one.partition, 0)


class Account:
    """Lives, one after the other, and the files and topics that they leave behind."""

    def __init__(self, world: World, done: Path) -> None:
        self.world = world
        self.lives: list[Life] = []
        self._done = done
        self._seen = Counter[str]()  # of all lives before

    @property
    def size(self) -> int:
        return self._done.stat().st_size if self._done.exists() else 0

    def committed(self) -> dict[int, int]:
        return self.world.main.committed()

    async def start(self) -> asyncio.subprocess.Process:
        said = {"tickets": self.world.said, "done": str(self._done), "seconds": 0.001}
        words = ("-m", "tests.systems.tickets.worker_process", json.dumps(said))
        return await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL)

    def close(self, committed: dict[int, int]) -> None:
        """That life is over. What it did, whoever comes next finds committed, or repeats."""
        known, self._seen = self._seen, self._finished()
        self.lives.append(Life([_finished(line) for line in (self._seen - known).elements()], committed))

    def _finished(self) -> Counter[str]:
        """All that was ever done or buried: ticket and place."""
        done = self._done.read_text().splitlines() if self._done.exists() else []
        graves = (
            f"{json.loads(one.value())['ticket_id']} {dict(one.headers())['redrive-dlq-origin'].decode()}"
            for one in self.world.graves()
        )
        return Counter([*done, *graves])


def _finished(line: str) -> Finished:
    ticket, place = line.split()
    partition, _, offset = place.rpartition("[")[2].partition("]@")
    return Finished(ticket, int(partition), int(offset))


async def test_nothing_is_lost_though_workers_are_killed(make_world: MakesWorld, tmp_path: Path) -> None:
    world = make_world()
    own = world.settings.of(TicketSettings).kafka
    world.with_tickets(kafka=f"{own}&most_open={MOST_OPEN}&consumer.group.instance.id=worker")  # no session to wait for
    names = [f"never-{n}" if n % 50 == 0 else f"ok-{n}" for n in range(TICKETS)]
    for start in range(0, TICKETS, 10_000):
        world.send(*names[start : start + 10_000])
    account, chance = Account(world, tmp_path / "done"), random.Random(7)
    for _ in range(KILLS):
        await _killed(account, chance.uniform(0, TICKETS / (KILLS + 1)))
    committed = account.committed()
    last = await account.start()
    assert await asyncio.wait_for(last.wait(), 300) == 0
    account.close(committed)
    await world.collected()
    kept = {one["ticket_id"] for one in world.documents.find({}, {"ticket_id": 1})}
    _check(account.lives, {world.id(name) for name in names}, kept)
    assert list(world.redis.scan_iter(f"ticket:retry_count:{world.name}:*")) == []


async def _killed(account: Account, tickets: float) -> None:
    """A worker that has committed something, and done about so many tickets, is killed."""
    before, committed = account.size, account.committed()
    process = await account.start()

    async def is_due() -> bool:
        assert process.returncode is None, "it ended by itself"
        if account.size - before <= tickets * _LINE:
            return False
        return sum((await asyncio.to_thread(account.committed)).values()) > sum(committed.values())

    await until(is_due, timeout=120, what="it has done its part")
    process.kill()
    await process.wait()
    account.close(committed)


def _check(lives: Sequence[Life], sent: Iterable[str], kept: set[str]) -> None:
    total = Counter(one.ticket for life in lives for one in life.finished)
    assert total.keys() == set(sent), "lost, or come from nowhere"
    assert kept == {ticket for ticket in total if ":never-" in ticket}
    before: set[Finished] = set()
    repeats = 0
    for life in lives:
        now = Counter(life.finished)
        assert max(now.values(), default=0) <= 1, "repeated by one worker"
        again = before & now.keys()
        assert [one for one in again if not life.may_repeat(one)] == [], "repeated though it was committed"
        repeats += len(again)
        assert _reach(before, life) <= MOST_OPEN + _AHEAD + _BATCH, "more was open than may be"
        before |= now.keys()
    print(f"{len(total):,} tickets, {len(lives) - 1} kills, {repeats:,} repeats, {len(kept):,} dead, 0 lost")


def _reach(before: set[Finished], life: Life) -> int:
    """How far beyond the committed offset somebody had come when that life began."""
    return max((one.offset + 1 - life.committed.get(one.partition, 0) for one in before), default=0)
