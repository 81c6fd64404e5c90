"""Whatever happens to a queue, its statistics are what a recount says."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.systems.workflow import DeadLetterQueue, DeadLetterStatus, QueueFull, RetryPolicy
from redrive.testing.clock import ManualClock

NAMES = [f"t{number}" for number in range(6)]
names = st.sampled_from(NAMES)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("enqueue"),
            names,
            st.sampled_from(["rate limit", "timeout", "malformed", "?"]),
            st.sampled_from(RetryPolicy),
            st.integers(0, 2),
        ),
        st.tuples(st.just("cycle"), st.booleans(), st.integers(0, 400)),
        st.tuples(st.just("retry"), names, st.booleans()),
        st.tuples(st.just("archive"), names),
        st.tuples(st.just("clear")),
    ),
    max_size=40,
)


class Model:
    """Counts for itself what the queue should have counted."""

    def __init__(self) -> None:
        self.lifetime = Counter[str]()


@given(steps)
@settings(max_examples=60, deadline=None)
def test_the_statistics_are_what_a_recount_says(todo: list[tuple[Any, ...]]) -> None:
    asyncio.run(_follow(todo))


async def _follow(todo: list[tuple[Any, ...]]) -> None:
    clock, model = ManualClock(), Model()
    async with DeadLetterQueue(max_size=100, clock=clock) as dlq:
        for number in range(96):  # so that it is full with four more
            await dlq.enqueue(f"old {number}", {}, [], "x", retry_policy=RetryPolicy.NEVER)
        model.lifetime["enqueued_total"] = 96
        for step in todo:
            await _do(dlq, clock, model, step)
            await _check(dlq, model)


async def _do(dlq: DeadLetterQueue, clock: ManualClock, model: Model, step: tuple[Any, ...]) -> None:
    lifetime = model.lifetime
    match step:
        case ("enqueue", name, error, policy, retries):
            known, size = await dlq.get_task(name), len(await dlq.list_tasks())
            is_open = known is not None and known.status not in ("resolved", "archived")
            try:
                await dlq.enqueue(name, {}, [], error, retry_policy=policy, max_retries=retries)
                assert is_open or size < 100
                lifetime["enqueued_total"] += 1
            except QueueFull:
                assert not is_open
                assert size == 100
        case ("cycle", works, seconds):
            await clock.advance(seconds)
            before = {task.task_id for task in await dlq.list_tasks(DeadLetterStatus.EXHAUSTED)}
            cycle = await dlq.run_retry_cycle(lambda task, repos: works)
            assert cycle.started == cycle.succeeded + cycle.failed
            after = {task.task_id for task in await dlq.list_tasks(DeadLetterStatus.EXHAUSTED)}
            lifetime["retry_success"] += cycle.succeeded
            lifetime["retry_failed"] += cycle.failed
            lifetime["exhausted"] += len(after - before)
        case ("retry", name, works):
            dlq.retry_callback = lambda task, repos: works
            known = await dlq.get_task(name)
            answer = await dlq.retry_task(name)
            took = known is not None and known.status in ("pending", "exhausted")
            assert answer["success"] is (took and works)
            lifetime["manually_retried"] += took
            lifetime["retry_success"] += took and works
            lifetime["retry_failed"] += took and not works
            now = await dlq.get_task(name)
            lifetime["exhausted"] += took and now is not None and now.status == "exhausted"
        case ("archive", name):
            known = await dlq.get_task(name)
            could = known is not None and known.status != "archived"
            assert await dlq.archive_task(name) is could
            lifetime["archived"] += could
        case ("clear",):
            everything = [task for status in DeadLetterStatus for task in await dlq.list_tasks(status)]
            assert await dlq.clear_all() == len(everything)


async def _check(dlq: DeadLetterQueue, model: Model) -> None:
    stats, open_tasks = await dlq.get_statistics(), await dlq.list_tasks()
    assert stats["queue_size"] == len(open_tasks)
    assert stats["utilization_percent"] == len(open_tasks)
    assert stats["status_breakdown"] == {status.value: len(await dlq.list_tasks(status)) for status in DeadLetterStatus}
    assert stats["error_categories"] == Counter(task.error_category.value for task in open_tasks)
    assert stats["retry_policies"] == Counter(str(task.retry_policy) for task in open_tasks)
    assert stats["lifetime_stats"] == {name: model.lifetime[name] for name in stats["lifetime_stats"]}
