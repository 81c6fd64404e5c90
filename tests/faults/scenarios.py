"""Where workers are killed: at every step, at its first time and in the middle of the work."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from redrive.testing.faults import Step
from tests.faults.harness import HEADING, Account, check, kill_at, kill_at_random

KILLS: dict[Step, tuple[int, ...]] = {
    Step.RECEIVED: (1, 5),
    Step.ATTEMPTED: (1, 7, 150),  # not the last of its batch: some are done, some are not begun
    Step.BEFORE_RECORD: (1, 4),
    Step.AFTER_RECORD: (1, 4),
    Step.BEFORE_RESOLVE: (1,),
    Step.AFTER_RESOLVE: (1,),
    Step.BEFORE_ACK: (1, 6),
    Step.AFTER_ACK: (1, 6),
    Step.BEFORE_SEND: (1, 2),
    Step.AFTER_SEND: (1, 2),
    Step.BEFORE_CONFIRM: (1, 2),
    Step.AFTER_CONFIRM: (1, 2),
}
SOAK = {"ok": 1500, "once": 60, "again": 30, "never": 30, "bad": 20, "back": 30, "dead": 30}
_AT_ONCE = 4  # they mostly wait for leases to end


async def run_all(
    directory: Path,
    transport: Callable[[], str] = lambda: "",
    kills: Mapping[Step, tuple[int, ...]] = KILLS,
    store: Callable[[], str] = lambda: "",
) -> dict[tuple[Step, int], Account | BaseException]:
    """Each in a directory and a queue of its own, some at the same time."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(step: Step, nth: int) -> Account:
        async with room:
            place = directory / f"{step}-{nth}"
            place.mkdir()
            return await kill_at(place, step, nth, transport(), store())

    wanted = [(step, nth) for step, times in kills.items() for nth in times]
    results = await asyncio.gather(*(one(*each) for each in wanted), return_exceptions=True)
    return dict(zip(wanted, results, strict=True))


async def soak(directory: Path, seed: int, kills: int = 6, transport: str = "", store: str = "") -> Account:
    """Kills at random times; the same seed gives the same times."""
    rng = random.Random(seed)
    return await kill_at_random(directory, [rng.uniform(0.02, 0.6) for _ in range(kills)], SOAK, transport, store)


def seed() -> int:
    return int(os.environ.get("REDRIVE_FAULT_SEED", "1"))


async def show() -> int:
    """The table, for people; how many of its lines are wrong."""
    wrong = 0
    print(HEADING)
    with tempfile.TemporaryDirectory() as name:
        results: list[object] = list((await run_all(Path(name))).values())
        soaked = Path(name) / "soak"
        soaked.mkdir()
        results.append(await soak(soaked, seed()))
    for result in results:
        try:
            if isinstance(result, BaseException):
                raise result
            assert isinstance(result, Account)
            print(result.row())
            check(result)
        except AssertionError as error:
            wrong += 1
            print(f"  WRONG: {error}")
    return wrong
