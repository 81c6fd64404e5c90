"""The one process of a contender on Redis: a producer or a worker, started and timed by families/redis.py.

    args      a Task as JSON                                stdout    stdin
    produce   adds to "warm"; on go, adds to "jobs"         ready     go
                                                            done
    work      handles "warm"; on go, handles "jobs"         ready     go
                                                            handled   (runs on until it is killed)
    tell      adds to "jobs", one by one, with pauses       ready     go
                                                            done
    hear      handles them; says how long each took to it   ready
                                                            [ns, …]

Everybody is timed from outside, from `go` to the answer, and a worker until Redis holds nothing unsettled, so that no
contender tells its own time. bullmq_node/bullmq.mjs says the same in its language. Only the standard library is
needed here: arq lives in an environment of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

Order = dict[str, Any]
Handle = Callable[[Order], None]
ATTEMPTS = 3
BULK = 500
CONCURRENCY = 50
_PAUSES = (0.005, 0.015)  # seconds between two jobs of `tell`: the worker is idle again


@dataclass(frozen=True)
class Task:
    """What the family asks of a process."""

    role: str
    url: str
    orders: str  # file with one JSON body a line
    count: int
    warm: int
    failing: bool
    tenants: int


class Peer(Protocol):
    """What a contender written in Python has to do."""

    async def add(self, queue: str, orders: Sequence[Order]) -> None:
        """Returns when Redis has them all."""
        ...

    async def work(self, queue: str, handle: Handle) -> None:
        """Until it is cancelled."""
        ...


class Failed(Exception):
    """What a handler raises here."""


class Counting:
    """A handler that does nothing but count, or fails one job in a hundred always and ten in a hundred once."""

    def __init__(self, calls: int, last: Callable[[], object], *, failing: bool = False) -> None:
        self._left, self._last, self._failing = calls, last, failing
        self._failed: set[int] = set()

    def __call__(self, order: Order) -> None:
        self._left -= 1
        if not self._left:
            self._last()
        if self._failing:
            self._fail(number_of(order))

    def _fail(self, number: int) -> None:
        once = number % 10 == 1 and number not in self._failed
        if once or number % 100 == 0:
            self._failed.add(number)
            raise Failed(f"job {number}")


def number_of(order: Order) -> int:
    return int(order["order"][4:])


def calls(count: int, failing: bool) -> int:
    """How often a handler is called until all is settled."""
    if not failing:
        return count
    numbers = range(count)
    return count + len(numbers[1::10]) + (ATTEMPTS - 1) * len(numbers[0::100])


def main(open: Callable[[Task], Peer]) -> None:
    """Play the part that the arguments say."""
    task = Task(**json.loads(sys.argv[1]))
    with asyncio.Runner(loop_factory=_loop()) as runner:
        runner.run(_ROLES[task.role](task, open(task)))


async def _produce(task: Task, peer: Peer) -> None:
    orders = read(task.orders)
    for some in bulks(orders[: task.warm]):
        await peer.add("warm", some)
    await go()
    await peer.add("jobs", orders[: task.count])
    say("done")


async def _work(task: Task, peer: Peer) -> None:
    loop, warm = asyncio.get_running_loop(), asyncio.Event()
    handle = Counting(task.warm, partial(loop.call_soon_threadsafe, warm.set))
    await _until(warm, peer.work("warm", handle))
    await go()
    expected = calls(task.count, task.failing)
    await peer.work("jobs", Counting(expected, lambda: say("handled"), failing=task.failing))


async def _tell(task: Task, peer: Peer) -> None:
    orders, chance = read(task.orders), random.Random(7)
    await peer.add("warm", orders[:1])
    await go()
    for order in orders[: task.count]:
        await asyncio.sleep(chance.uniform(*_PAUSES))
        await peer.add("jobs", [{**order, "at": time.monotonic_ns()}])
    say("done")


async def _hear(task: Task, peer: Peer) -> None:
    took: list[int] = []

    def handle(order: Order) -> None:
        took.append(time.monotonic_ns() - order["at"])
        if len(took) == task.count:
            say(json.dumps(took))

    say("ready")
    await peer.work("jobs", handle)


_ROLES: dict[str, Callable[[Task, Peer], Coroutine[None, None, None]]] = {
    "produce": _produce,
    "work": _work,
    "tell": _tell,
    "hear": _hear,
}


async def _until(event: asyncio.Event, work: Awaitable[None]) -> None:
    """Let it run until then, and a moment longer: what it handled last is to be settled."""
    task = asyncio.ensure_future(work)
    waiter = asyncio.ensure_future(event.wait())
    await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    await asyncio.sleep(0.3)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def read(path: str) -> list[Order]:
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def bulks(orders: Sequence[Order]) -> list[Sequence[Order]]:
    return [orders[at : at + BULK] for at in range(0, len(orders), BULK)]


async def gathered(orders: Sequence[Order], add: Callable[[Order], Awaitable[object]]) -> None:
    """For those who have no bulk add: some at once."""
    waiting = iter(orders)

    async def adder() -> None:
        for order in waiting:
            await add(order)

    await asyncio.gather(*(adder() for _ in range(min(CONCURRENCY, len(orders)))))


async def go() -> None:
    """Say that we are ready, and wait for the signal."""
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)


def say(line: str) -> None:
    print(line, flush=True)


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    import uvloop

    return uvloop.new_event_loop
