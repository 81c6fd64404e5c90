"""What is due is retried, in order, at once, and whatever a callback does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import UsageError
from redrive.flow.breaker import BreakerRule
from redrive.model import State, letter_id
from redrive.stores.memory import MemoryStore
from redrive.systems.workflow import DeadLetterQueue, RetryPolicy
from redrive.telemetry.events import BreakerMoved, Event
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from redrive.transports.letters import LettersTransport
from tests.systems.workflow.helpers import MINUTE, REPOS, TASK, Worker, enqueued, failing, is_done, status_of

LEASE = timedelta(minutes=6)  # a retry may take five, and a minute


async def test_what_is_due_is_retried_and_nothing_else(dlq: DeadLetterQueue, clock: ManualClock) -> None:
    await enqueued(dlq, "now")
    await enqueued(dlq, "later", retry_policy=RetryPolicy.EXPONENTIAL)
    await enqueued(dlq, "never", retry_policy=RetryPolicy.NEVER)
    await enqueued(dlq, "no retries", max_retries=0)
    worker = Worker()
    cycle = await dlq.run_retry_cycle(worker)
    assert (worker.seen, cycle.started, cycle.succeeded) == (["now"], 1, 1)
    await clock.advance(MINUTE)
    await dlq.run_retry_cycle(worker)
    assert worker.seen == ["now", "later"]
    assert [await is_done(dlq, name) for name in ("now", "later", "never")] == [True, True, False]


def _raise(error: BaseException) -> Any:
    raise error


FAILURES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "raises": (lambda task: _raise(ConnectionError("refused")), "refused"),
    "raises an exit": (lambda task: _raise(SystemExit(3)), "SystemExit"),
    "says success is false": (lambda task: {"success": False, "error": "no luck"}, "no luck"),
    "says failed": (lambda task: {"status": "failed", "error": "no luck"}, "no luck"),
    "says error": (lambda task: {"status": "ERROR"}, "ended as ERROR"),
    "returns false": (lambda task: False, "returned False"),
    "cancels itself": (lambda task: _raise(asyncio.CancelledError()), "cancelled from within"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_callback_that_fails_leaves_its_task_waiting(name: str, dlq: DeadLetterQueue) -> None:
    answer, text = FAILURES[name]
    await enqueued(dlq, "a", retry_policy=RetryPolicy.IMMEDIATE)
    cycle = await dlq.run_retry_cycle(Worker(answer))
    task = await dlq.get_task("a")
    assert task is not None
    assert (task.status, task.retry_count, task.total_attempts, cycle.failed) == ("pending", 1, 2, 1)
    assert text in task.last_error
    assert task.error == "Connection timeout"


@pytest.mark.parametrize("answer", [None, True, {"status": "completed"}, {"success": True, "status": "failed"}, "done"])
async def test_every_other_answer_is_a_success(dlq: DeadLetterQueue, answer: Any) -> None:
    await enqueued(dlq, "a")
    await dlq.run_retry_cycle(lambda task, repos: answer)
    assert await is_done(dlq, "a")


async def test_a_task_that_keeps_failing_is_exhausted(dlq: DeadLetterQueue, clock: ManualClock) -> None:
    await enqueued(dlq, "a", retry_policy=RetryPolicy.EXPONENTIAL, max_retries=3)
    worker = failing()
    for _ in range(6):
        await clock.advance(60 * MINUTE)
        await dlq.run_retry_cycle(worker)
    task = await dlq.get_task("a")
    assert task is not None
    assert (task.status, task.retry_count, task.total_attempts, task.next_retry_at) == ("exhausted", 3, 4, None)
    stats = (await dlq.get_statistics())["lifetime_stats"]
    assert (stats["retry_failed"], stats["exhausted"]) == (3, 1)


@pytest.mark.parametrize("tasks", [1, 20, 50], ids=str)
async def test_what_fails_and_may_be_retried_at_once_waits_for_the_next_cycle(dlq: DeadLetterQueue, tasks: int) -> None:
    """Also where a cycle has more to do than it may do at once."""
    for number in range(tasks):
        await enqueued(dlq, f"t{number}", retry_policy=RetryPolicy.IMMEDIATE, max_retries=3)
    for cycles in (1, 2, 3):
        worker = failing(ValueError("not yet"))
        cycle = await dlq.run_retry_cycle(worker)
        assert (cycle.started, cycle.failed) == (tasks, tasks)
        assert sorted(worker.seen) == sorted(f"t{number}" for number in range(tasks))
        assert {task.retry_count for task in await dlq.list_tasks()} == {cycles}
    assert (await dlq.get_statistics())["status_breakdown"]["exhausted"] == tasks


async def test_the_processor_itself_does_not_retry_before_its_next_cycle() -> None:
    """With the machine's own clock, on which time goes by while a cycle runs."""
    worker = failing(ValueError("not yet"))
    async with DeadLetterQueue(parallel=2) as dlq:
        for number in range(20):
            await enqueued(dlq, f"t{number}", max_retries=3)
        await dlq.start_retry_processor(worker, check_interval_seconds=3600)

        async def are_done() -> bool:
            return bool((await dlq.get_statistics())["lifetime_stats"]["retry_failed"] == 20)

        await until(are_done)
        await enqueued(dlq, "later")
        await dlq.stop_retry_processor()
        assert sorted(worker.seen) == sorted(f"t{number}" for number in range(20))


async def test_one_that_hangs_does_not_hold_the_others(clock: ManualClock) -> None:
    release = asyncio.Event()

    async def callback(task: dict[str, Any], repos: list[str]) -> None:
        if task["name"] == "hangs":
            while not release.is_set():  # not even a cancellation moves it
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

    async with DeadLetterQueue(clock=clock, parallel=2, retry_timeout="100ms") as dlq:
        await enqueued(dlq, "hangs", retry_policy=RetryPolicy.LINEAR)
        for number in range(10):
            await enqueued(dlq, f"t{number}", retry_policy=RetryPolicy.LINEAR)
        await clock.advance(5 * MINUTE)
        cycle = await dlq.run_retry_cycle(callback)
        assert (cycle.succeeded, cycle.failed) == (10, 1)
        task = await dlq.get_task("hangs")
        assert task is not None
        assert "took longer than" in task.last_error
        assert task.status == "pending"
        release.set()


async def test_a_cycle_runs_in_parallel_with_a_bound(clock: ManualClock) -> None:
    async with DeadLetterQueue(clock=clock, parallel=7) as dlq:
        for number in range(30):
            await enqueued(dlq, f"t{number}")
        worker = Worker()
        assert (await dlq.run_retry_cycle(worker)).succeeded == 30
        assert (worker.most, len(set(worker.seen))) == (7, 30)


async def test_high_goes_before_medium_before_low(clock: ManualClock) -> None:
    async with DeadLetterQueue(clock=clock, parallel=1) as dlq:
        for name in ("low", "medium", "high", "none"):
            await enqueued(dlq, name, metadata={} if name == "none" else {"priority": name})
        worker = Worker()
        await dlq.run_retry_cycle(worker)
        assert worker.seen == ["high", "medium", "none", "low"]


async def test_b_is_retried_after_a_succeeded(dlq: DeadLetterQueue) -> None:
    await enqueued(dlq, "a", retry_policy=RetryPolicy.NEVER)
    await enqueued(dlq, "b", after="a")
    await enqueued(dlq, "c", after=["a", "b", "nobody"])
    worker = Worker()
    await dlq.run_retry_cycle(worker)
    assert worker.seen == []
    assert (await dlq.retry_task("b"))["error"] == "task 'b' waits for a: retry or archive that first"
    assert (await dlq.retry_task("a"))["success"]
    await dlq.run_retry_cycle()
    await dlq.run_retry_cycle()
    assert worker.seen == ["a", "b", "c"]


async def test_a_retry_by_hand_uses_no_automatic_one_up(dlq: DeadLetterQueue, clock: ManualClock) -> None:
    await enqueued(dlq, "a", retry_policy=RetryPolicy.EXPONENTIAL, max_retries=1)
    assert (await dlq.retry_task("a"))["error"].startswith("nobody said how a task is retried")
    worker = failing()
    due = clock.now() + timedelta(minutes=1)
    await dlq.run_retry_cycle(worker)
    assert await dlq.retry_task("a") == {
        "success": False,
        "task_id": "a",
        "error": "Connection timeout",
        "result": {"success": False, "error": "Connection timeout"},
    }
    task = await dlq.get_task("a")
    assert task is not None
    assert (task.status, task.retry_count, task.next_retry_at, task.total_attempts) == ("pending", 0, due, 2)
    await clock.advance(MINUTE)
    await dlq.run_retry_cycle()
    assert await status_of(dlq, "a") == "exhausted"
    await dlq.retry_task("a")
    assert await status_of(dlq, "a") == "exhausted"
    stats = (await dlq.get_statistics())["lifetime_stats"]
    assert (stats["manually_retried"], stats["retry_failed"]) == (2, 3)


async def test_a_retry_by_hand_of_what_is_done_says_so(dlq: DeadLetterQueue) -> None:
    await enqueued(dlq, "a")
    await dlq.run_retry_cycle(Worker())
    assert (await dlq.retry_task("a"))["error"] in (
        "task 'a' is resolved: there is nothing to retry",
        "there is no task 'a': what was resolved, or never enqueued, is not in memory",
    )


async def test_nobody_retries_by_hand_what_is_being_retried(dlq: DeadLetterQueue) -> None:
    answers = []

    async def callback(task: dict[str, Any], repos: list[str]) -> None:
        answers.append(await dlq.retry_task("a"))

    await enqueued(dlq, "a")
    await dlq.run_retry_cycle(callback)
    assert [one["error"] for one in answers] == ["a retry of task 'a' is under way already"]


async def test_a_partial_success_is_retried_only_where_it_failed(dlq: DeadLetterQueue) -> None:
    seen: list[list[str]] = []

    async def callback(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        seen.append(repos)
        return (
            {"status": "partial", "failed_repos": ["/b"], "error": "timeout"} if len(seen) == 1 else {"success": True}
        )

    await dlq.enqueue("a", TASK, ["/a", "/b"], "timeout", retry_policy=RetryPolicy.IMMEDIATE)
    await dlq.run_retry_cycle(callback)
    await dlq.run_retry_cycle()
    assert seen == [["/a", "/b"], ["/b"]]
    assert await is_done(dlq, "a")


# -- the loop ------------------------------------------------------------------------------------------------------


async def test_the_processor_looks_again_at_every_interval(dlq: DeadLetterQueue, clock: ManualClock) -> None:
    worker = Worker()
    await enqueued(dlq, "first")
    await dlq.start_retry_processor(worker, check_interval_seconds=10)
    await until(lambda: worker.seen == ["first"])
    await enqueued(dlq, "second")

    async def resolved() -> None:
        while not await is_done(dlq, "second"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    await clock.eventually(resolved())
    assert worker.seen == ["first", "second"]
    await dlq.stop_retry_processor()
    assert not (await dlq.get_statistics())["is_processor_running"]


async def test_a_backlog_does_not_wait_for_the_next_interval() -> None:
    worker = Worker()
    async with DeadLetterQueue(parallel=2) as dlq:
        for number in range(25):
            await enqueued(dlq, f"t{number}")
        await dlq.start_retry_processor(worker, check_interval_seconds=3600)
        await until(lambda: len(worker.seen) == 25)
        assert worker.most == 2


async def test_starting_twice_is_one_processor(dlq: DeadLetterQueue) -> None:
    worker = Worker()
    await enqueued(dlq, "a")
    await dlq.start_retry_processor(failing(), 60)
    await dlq.start_retry_processor(worker, 60)
    await until(lambda: bool(worker.seen))
    await dlq.stop_retry_processor()
    assert worker.seen == ["a"]


async def test_without_a_callback_it_does_not_start(dlq: DeadLetterQueue) -> None:
    with pytest.raises(UsageError, match="nobody said how"):
        await dlq.start_retry_processor(None, 60)


async def test_stopping_lets_what_runs_finish(dlq: DeadLetterQueue) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def callback(task: dict[str, Any], repos: list[str]) -> None:
        began.set()
        await go.wait()

    await enqueued(dlq, "a")
    await dlq.start_retry_processor(callback, 60)
    await began.wait()
    stopping = asyncio.create_task(dlq.stop_retry_processor())
    await enqueued(dlq, "b")
    go.set()
    await stopping
    assert [await is_done(dlq, name) for name in "ab"] == [True, False]


async def test_what_does_not_finish_in_time_waits_as_before(dlq: DeadLetterQueue) -> None:
    began = asyncio.Event()

    async def callback(task: dict[str, Any], repos: list[str]) -> None:
        began.set()
        await asyncio.Event().wait()

    await enqueued(dlq, "a")
    await dlq.start_retry_processor(callback, 60)
    await began.wait()
    await dlq.stop_retry_processor(grace="10ms")
    task = await dlq.get_task("a")
    assert task is not None
    assert (task.status, task.retry_count, task.total_attempts) == ("pending", 0, 1)
    await dlq.run_retry_cycle(Worker())
    assert await is_done(dlq, "a")


async def test_a_clock_that_is_set_back_holds_nothing_up(dlq: DeadLetterQueue, clock: ManualClock) -> None:
    await enqueued(dlq, "a", retry_policy=RetryPolicy.EXPONENTIAL)
    clock.set_back(86_400)
    worker = Worker()
    await clock.advance(MINUTE - 1)
    await dlq.run_retry_cycle(worker)
    assert worker.seen == []
    await clock.advance(1)
    await dlq.run_retry_cycle(worker)
    assert worker.seen == ["a"]


async def test_a_clock_that_is_set_forward_makes_due_what_it_says_is_due(
    dlq: DeadLetterQueue, clock: ManualClock
) -> None:
    await enqueued(dlq, "a", retry_policy=RetryPolicy.EXPONENTIAL)
    clock.set_back(-3600)
    worker = Worker()
    await dlq.run_retry_cycle(worker)
    assert worker.seen == ["a"]


# -- several, and dead ones ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_two_processors_never_have_one_task_at_once(kind: str, tmp_path: Path, clock: ManualClock) -> None:
    shared = MemoryStore()
    running: set[str] = set()
    seen: list[str] = []

    async def callback(task: dict[str, Any], repos: list[str]) -> None:
        assert task["name"] not in running
        running.add(task["name"])
        seen.append(task["name"])
        await asyncio.sleep(0.001)
        running.remove(task["name"])

    queues = [
        DeadLetterQueue(store=shared if kind == "memory" else tmp_path / "w.db", clock=clock, retry_callback=callback)
        for _ in range(3)
    ]
    for number in range(40):
        await enqueued(queues[number % 3], f"t{number}")
    await asyncio.gather(*(queue.run_retry_cycle() for queue in queues))
    assert sorted(seen) == sorted(f"t{number}" for number in range(40))
    for queue in queues:
        await queue.aclose()


async def test_what_a_dead_processor_had_is_retried_when_its_lease_ends(clock: ManualClock) -> None:
    store = MemoryStore()
    queue = DeadLetterQueue(store=store, clock=clock, retry_timeout="5m")
    await enqueued(queue, "retried")
    await enqueued(queue, "by hand", retry_policy=RetryPolicy.NEVER)
    dead = LettersTransport(store, clock=clock, lease=LEASE)
    assert await dead.take_one(letter_id("workflow", "by hand")) is not None
    assert len(await dead.take("workflow", 10)) == 1
    async with DeadLetterQueue(store=store, clock=clock, retry_timeout="5m") as dlq:
        worker = Worker()
        await clock.advance(5 * MINUTE)
        await dlq.run_retry_cycle(worker)
        assert worker.seen == []
        await clock.advance(2 * MINUTE)
        await dlq.run_retry_cycle(worker)
        assert worker.seen == ["retried"]
        assert await status_of(dlq, "by hand") == "pending"


@pytest.mark.parametrize("answer", [False, True])
async def test_one_that_lost_its_lease_says_nothing_of_a_failure_and_everything_of_a_success(
    clock: ManualClock, answer: bool
) -> None:
    store = MemoryStore()
    slow = DeadLetterQueue(store=store, clock=clock, retry_timeout="5m")
    quick = LettersTransport(store, clock=clock, lease=LEASE)
    began, go = asyncio.Event(), asyncio.Event()

    async def callback(task: dict[str, Any], repos: list[str]) -> bool:
        began.set()
        await go.wait()
        return answer

    await enqueued(slow, "a")
    running = asyncio.create_task(slow.run_retry_cycle(callback))
    await began.wait()
    await clock.advance(7 * MINUTE)
    await quick.rescue("workflow")
    [taken] = await quick.take("workflow", 1)
    go.set()
    await running
    kept = await store.letters.get(taken.token.letter.id)
    if answer:
        assert kept is None, "it is resolved, and no longer in memory"
    else:
        assert kept is not None
        assert (kept.state, kept.owner) == (State.RETRYING, taken.token.owner)


# -- the breaker ---------------------------------------------------------------------------------------------------


async def test_an_adapter_that_keeps_failing_is_left_alone_and_the_others_are_not(clock: ManualClock) -> None:
    facts: list[Event] = []
    rule = BreakerRule(failures=3, wait=timedelta(seconds=30))
    down = True

    def answer(task: dict[str, Any]) -> Any:
        if task["adapter"] == "down" and down:
            raise ConnectionError("refused")
        return True

    worker = Worker(answer)
    async with DeadLetterQueue(clock=clock, parallel=1, breaker=rule, observability_manager=facts.append) as dlq:
        for number in range(10):
            for adapter in ("down", "up"):
                await dlq.enqueue(
                    f"{adapter}-{number}",
                    {"name": adapter, "adapter": adapter},
                    REPOS,
                    "x",
                    retry_policy=RetryPolicy.LINEAR,
                )
        await clock.advance(5 * MINUTE)
        await dlq.run_retry_cycle(worker)
        assert (worker.seen.count("down"), worker.seen.count("up")) == (3, 10)
        assert [one.state for one in facts if isinstance(one, BreakerMoved)] == ["open"]
        left = [task for task in await dlq.list_tasks() if task.retry_count == 0]
        assert len(left) == 7
        await clock.advance(30)
        down = False
        await dlq.run_retry_cycle()
        await dlq.run_retry_cycle()
        assert worker.seen.count("down") == 10


async def test_a_task_that_is_wrong_itself_does_not_open_the_breaker(clock: ManualClock) -> None:
    rule = BreakerRule(failures=3)
    async with DeadLetterQueue(clock=clock, parallel=1, breaker=rule) as dlq:
        for number in range(10):
            await enqueued(dlq, f"t{number}", retry_policy=RetryPolicy.LINEAR)
        await clock.advance(5 * MINUTE)
        worker = failing(ValueError("malformed"))
        await dlq.run_retry_cycle(worker)
        assert len(worker.seen) == 10
