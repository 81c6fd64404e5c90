"""Sends, kills, restarts, and counts: every message has to be done or a letter, and little done again."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

from benchmarks.accounts.orders import EFFECTS, LINE, SOURCE, Orders, expected_runs, is_hopeless
from benchmarks.accounts.supervised import Supervised
from benchmarks.accounts.worker import app_of
from redrive import Redrive
from redrive.forensics.query import Query
from redrive.model import Reason, State
from redrive.stores.paging import every_letter

_AT_ONCE = 2_000
_LOOK = 0.002  # seconds between two looks at the log
_A_LIFE = 2.5  # seconds that the work of a process lasts which is to be killed: it takes one or two to start
_PATIENCE = 300.0  # seconds without any progress
_STRIKES = 3  # of so many workers, one sees its server killed


class Account(Struct, frozen=True, kw_only=True):
    """Where everything is in the end."""

    broker: str
    messages: int
    kills: int
    batch: int
    lost: int  # neither run to its end nor a letter
    letters: int
    crashed: int  # of them, buried because they were held by too many workers that were killed
    left: int  # in the queue still
    runs: int
    repeats: int
    repeats_per_kill: float
    most_repeats: int  # of messages that were done again after one kill
    standstill: float  # seconds from the start of a worker to its first run after a kill, on average
    longest_standstill: float
    seconds: float
    seed: int
    processes: int = 0  # under a supervisor; 0: one worker, and none
    server_kills: int = 0
    doubled: int = 0  # effects that are there twice, where the handler's work and its ack are one transaction


async def account(
    broker: str,
    url: str,
    directory: Path,
    *,
    messages: int,
    kills: int,
    batch: int,
    seed: int,
    source: str = SOURCE,
    processes: int = 0,
    strike: Callable[[], None] | None = None,
    exactly_once: bool = False,
) -> Account:
    """Kill as many workers (or processes of a supervisor) wherever they are, and let the last one end the work.

    strike         kills the server and starts it again: done to every third worker while it works
    exactly_once   the handler writes into a table of the queue's database, which has to have each number once
    """
    began = time.monotonic()
    orders = Orders(url, str(directory), 0, batch, source=source, exactly_once=exactly_once)
    if exactly_once:
        await _effects(url, f"CREATE TABLE {EFFECTS} (number integer)")
    app = app_of(orders)
    async with app:
        await _send(app, source, messages)
        if processes:
            standstills = list[float]()
            await _kill_under_supervisor(app, orders, messages, kills, Random(seed), processes)
        else:
            standstills = await _kill(orders, messages, kills, Random(seed), strike)
            await _end(app, msgspec.structs.replace(orders, life=kills), messages)
        letters = [letter async for letter in every_letter(app.store.letters, Query())]
        left = await _left(app)
    lives = _lives(orders.log)
    runs = Counter(number for number, _ in lives)
    buried = {int(letter.message.body) for letter in letters if letter.state is not State.RESOLVED}
    effects = Counter(await _effects(url, f"SELECT number FROM {EFFECTS}")) if exactly_once else runs
    lost = sum(1 for number in range(messages) if not (number in buried if is_hopeless(number) else effects[number]))
    repeats, repeated = _repeats(lives)
    return Account(
        broker=broker,
        messages=messages,
        kills=kills,
        batch=batch,
        lost=lost,
        letters=len(letters),
        crashed=sum(letter.reason is Reason.CRASHED for letter in letters),
        left=left,
        runs=len(lives),
        repeats=repeats,
        repeats_per_kill=round(repeats / max(kills, 1), 1),
        most_repeats=max(repeated.values(), default=0),
        standstill=round(sum(standstills) / max(len(standstills), 1), 1),
        longest_standstill=round(max(standstills, default=0), 1),
        seconds=round(time.monotonic() - began, 1),
        seed=seed,
        processes=processes,
        server_kills=len(range(1, kills, _STRIKES)) if strike else 0,
        doubled=sum(number - 1 for number in effects.values()) if exactly_once else 0,
    )


async def _effects(url: str, statement: str) -> list[int]:
    """The numbers that a statement gives."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute(statement.encode())
        return [number for (number,) in await cursor.fetchall()] if cursor.description else []


async def _send(app: Redrive, source: str, messages: int) -> None:
    for first in range(0, messages, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, messages))
        await app.send_messages([app.message(source, number, key=f"key-{number % 1000}") for number in numbers])


async def _kill(
    orders: Orders, messages: int, kills: int, rng: Random, strike: Callable[[], None] | None
) -> list[float]:
    """Each lives until it has begun a random number of messages, on average its share of all.

    Returns how long it took each but the first to begin one.
    """
    share, most, standstills = messages / (kills + 1), int(messages * 0.95), []
    for life in range(kills):
        before, began = _count(orders.log), time.monotonic()
        process = await _started(msgspec.structs.replace(orders, life=life))
        try:
            await _until_begun(orders.log, before + 1, process)
            standstills.append(time.monotonic() - began)
            goal = before + int(share * rng.uniform(0.1, 1.8))
            if strike is not None and life % _STRIKES == 1:
                await _until_begun(orders.log, min((before + goal) // 2, most), process)
                strike()
            await _until_begun(orders.log, min(goal, most), process)  # so that something is left for the last one
            await asyncio.sleep(rng.uniform(0, 0.02))
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        print(f"  kill {life + 1} of {kills}: {_count(orders.log):,} runs", file=sys.stderr)
    return standstills[1:]


async def _kill_under_supervisor(
    app: Redrive, orders: Orders, messages: int, kills: int, rng: Random, processes: int
) -> None:
    """Kill any of its processes again and again, while the others go on; the supervisor ends with 0."""
    share, most = messages / (kills + 1), int(messages * 0.95)
    seconds = _A_LIFE * (kills + 1) * processes * orders.concurrency / messages  # so that there is load at each kill
    supervised = await Supervised.started(msgspec.structs.replace(orders, seconds=round(seconds, 3)), processes)
    try:
        for kill in range(kills):
            goal = _count(orders.log) + int(share * rng.uniform(0.1, 1.5))
            await _until_begun(orders.log, min(goal, most), supervised.process)
            await supervised.kill_any(rng)
            print(f"  kill {kill + 1} of {kills}: {_count(orders.log):,} runs", file=sys.stderr)
        if not await _until_nothing_is_left(app, orders, messages, supervised.process):
            raise SystemExit(f"the work stands still: {await _left(app)} are left, which no process takes")
        code = await supervised.end()
    finally:
        with suppress(ProcessLookupError):
            supervised.process.kill()
    if code or len(supervised.died) != kills:
        raise SystemExit(f"the supervisor ended with {code}, and said {supervised.died}")
    if await _left(app):  # what was done before and came again, and was given back at the end
        await _end(app, orders, messages)


async def _end(app: Redrive, orders: Orders, messages: int) -> None:
    """The last worker, until nothing is left; then it is stopped cleanly."""
    process = await _started(orders)
    await _until_nothing_is_left(app, orders, messages, process)
    if process.returncode is None:
        process.terminate()
    await process.wait()


async def _until_nothing_is_left(
    app: Redrive, orders: Orders, messages: int, process: asyncio.subprocess.Process
) -> bool:
    """False: it was waited for in vain, and what is missing is lost, as the account says."""
    hopeless = sum(map(is_hopeless, range(messages)))
    last, size = time.monotonic(), 0
    while await _left(app) or not _all_ran(orders.log, messages, await app.store.letters.count(Query()) - hopeless):
        if _count(orders.log) > size:
            last, size = time.monotonic(), _count(orders.log)
        if time.monotonic() - last > _PATIENCE or process.returncode is not None:
            return False
        await asyncio.sleep(0.2)
    return True


def _all_ran(log: Path, messages: int, crashed: int) -> bool:
    """Whether there is a letter of each that is hopeless, and every other ran, or is one too.

    What RabbitMQ has handed out is in no queue, so an empty queue does not tell.
    """
    if crashed < 0:
        return False
    runs = Counter(number for number, _ in _lives(log))
    return sum(not runs[number] for number in range(messages)) <= crashed


async def _until_begun(log: Path, goal: int, process: asyncio.subprocess.Process) -> None:
    last, size = time.monotonic(), -1
    while _count(log) < goal:
        if _count(log) > size:
            last, size = time.monotonic(), _count(log)
        if process.returncode is not None:
            raise SystemExit(f"a worker ended by itself with {process.returncode}")
        if time.monotonic() - last > _PATIENCE:
            raise SystemExit(f"no progress for {_PATIENCE:g} s")
        await asyncio.sleep(_LOOK)


async def _started(orders: Orders) -> asyncio.subprocess.Process:
    arguments = msgspec.json.encode(orders).decode()
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.accounts.worker", arguments)


async def _left(app: Redrive) -> int:
    return sum(depth.total for depth in (await app.transport().depths()).values())


def _count(log: Path) -> int:
    return log.stat().st_size // LINE if log.exists() else 0


def _lives(log: Path) -> list[tuple[int, int]]:
    """Each run: the number of its message, and the life of its worker."""
    return [(int(number), int(life)) for number, life in map(str.split, log.read_text().splitlines())]


def _repeats(lives: list[tuple[int, int]]) -> tuple[int, Counter[int]]:
    """How many runs there were too many, and how many messages were done again because of each kill: that of the worker
    that had begun the message before. One that fails once may run twice again, if it was done and not acknowledged."""
    seen: Counter[int] = Counter()
    before: dict[int, int] = {}
    repeats, repeated = 0, set[tuple[int, int]]()
    for number, life in lives:
        seen[number] += 1
        if seen[number] > expected_runs(number):
            repeats += 1
            if before[number] != life:
                repeated.add((before[number], number))
        before[number] = life
    return repeats, Counter(killed for killed, _ in repeated)
