"""The workflow queue in memory: what a task takes, what a cycle costs, and retries side by side."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import tracemalloc
from typing import Any

from benchmarks.harness import Cell, Measured, Scale, Target, in_loop, percentiles, say
from redrive.systems.workflow import DeadLetterQueue, RetryPolicy

_MOST = 100_000  # what a queue may hold
_MANY, _FEW, _DUE = 99_000, 100, 10
_KB = 1024.0
_ALIKE = 2.0  # "about the same": a cycle among 100,000 tasks to one among 100
_ERROR = "ConnectionError: the model server at 10.0.0.7 did not answer within 30 s"


def _task(number: int) -> dict[str, Any]:
    return {"type": "code_sweep", "branch": f"feature/{number}", "depth": number % 7, "adapter": "llamaindex"}


async def _fill(queue: DeadLetterQueue, count: int, policy: RetryPolicy = RetryPolicy.LINEAR, first: int = 0) -> None:
    for number in range(first, first + count):
        await queue.enqueue(f"wf_{number:08}", _task(number), [f"/repos/{number}"], _ERROR, retry_policy=policy)


# -- memory ----------------------------------------------------------------------------------------------------------


def memory(scale: Scale) -> Measured:
    """Bytes that a task takes in the queue, over the bytes of the task itself: its JSON, its id and its error."""
    count = scale.of(_MANY, 2_000)
    taken, own = in_loop(_weighed(count))
    return Measured(
        redrive=taken - own,
        peers={},
        details={"bytes_a_task": round(taken), "of_these_its_own": round(own)},
        settings={"tasks": count, "measured_with": "tracemalloc"},
    )


async def _weighed(count: int) -> tuple[float, float]:
    async with DeadLetterQueue(max_size=_MOST) as queue:
        await _fill(queue, 10, first=count)  # what is made once, for all
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await _fill(queue, count)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        letter = (await queue.list_tasks(limit=1))[0].letter
        own = len(letter.message.body) + len(letter.message.id) + len(_ERROR)
        return (after - before) / count, own


# -- a cycle ---------------------------------------------------------------------------------------------------------


def cycle(scale: Scale) -> Measured:
    """Milliseconds of a cycle with 10 due among 99,000, beside the same among 100."""
    many = scale.of(_MANY, 2_000)
    rounds = scale.of(50, 5)
    crowded, alone = in_loop(_cycles(many, rounds)), in_loop(_cycles(_FEW, rounds))
    return Measured(
        redrive=statistics.median(crowded) / statistics.median(alone),
        peers={},
        details={f"{many} tasks, ms": percentiles(crowded), f"{_FEW} tasks, ms": percentiles(alone)},
        settings={"due": _DUE, "rounds": rounds},
    )


async def _cycles(count: int, rounds: int) -> list[float]:
    took = []
    async with DeadLetterQueue(max_size=_MOST, retry_callback=lambda task, repos: True) as queue:
        await _fill(queue, count)
        for number in range(rounds + 1):
            await _fill(queue, _DUE, RetryPolicy.IMMEDIATE, first=count + number * _DUE)
            began = time.perf_counter()
            done = await queue.run_retry_cycle()
            took.append(time.perf_counter() - began)
            assert done.succeeded == _DUE
    return took[1:]


# -- in parallel -----------------------------------------------------------------------------------------------------


def parallel(scale: Scale) -> Measured:
    """Retries a second of callbacks that wait 10 ms each, with 100 at once; `ideal` waits for nothing else."""
    count, width, wait = scale.of(5_000, 200), 100, 0.01
    figures = sorted(in_loop(_retried(count, width, wait)) for _ in range(scale.rounds))
    say(f"  {figures}")
    return Measured(
        redrive=statistics.median(figures),
        peers={"ideal": width / wait},
        settings={"tasks": count, "parallel": width, "callback_ms": wait * 1e3},
    )


async def _retried(count: int, width: int, wait: float) -> float:
    async def callback(task: dict[str, Any], repos: list[str]) -> None:
        await asyncio.sleep(wait)

    async with DeadLetterQueue(max_size=_MOST, parallel=width, retry_callback=callback) as queue:
        await _fill(queue, count, RetryPolicy.IMMEDIATE)
        began = time.perf_counter()
        done = await queue.run_retry_cycle()
        assert done.succeeded == count
        return count / (time.perf_counter() - began)


CELLS = (
    Cell(name="workflow/memory", unit="bytes", measure=memory, target=Target(most=_KB), less_is_better=True),
    Cell(name="workflow/cycle", unit="times", measure=cycle, target=Target(most=_ALIKE), less_is_better=True),
    Cell(name="workflow/parallel", unit="retries/s", measure=parallel, target=Target(ratio=0.3)),
)
