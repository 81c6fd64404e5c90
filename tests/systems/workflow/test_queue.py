"""What goes in, what stays out, and what is said about it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import ConfigError, UsageError
from redrive.model import Letter, State
from redrive.stores.memory import MemoryStore
from redrive.stores.shape import Shape
from redrive.systems.workflow import (
    AccessDenied,
    BadTask,
    DeadLetterQueue,
    DeadLetterStatus,
    DuplicateTask,
    QueueFull,
    RetryPolicy,
    RoleManager,
    Template,
    WorkflowShape,
)
from redrive.telemetry.events import Event, Events, MessageBuried, QueueMeasured
from redrive.testing.clock import ManualClock
from redrive.testing.stores import LETTERS
from tests.systems.workflow.helpers import REPOS, TASK, Worker, enqueued, failing, is_done, status_of

DELAYS = {
    RetryPolicy.NEVER: [None] * 8,
    RetryPolicy.LINEAR: [5, 10, 15, 20, 25, 30, 35, 40],
    RetryPolicy.EXPONENTIAL: [1, 2, 4, 8, 16, 32, 60, 60],
    RetryPolicy.IMMEDIATE: [0] * 8,
}


@pytest.mark.parametrize("policy", RetryPolicy)
async def test_each_policy_waits_as_the_document_says(policy: RetryPolicy, clock: ManualClock) -> None:
    async with DeadLetterQueue(clock=clock) as dlq:
        task = await dlq.enqueue("a", TASK, REPOS, "x", retry_policy=policy, max_retries=10)
        waits = []
        for _ in range(8):
            due = task.next_retry_at
            waits.append(None if due is None else (due - clock.now()) / timedelta(minutes=1))
            if due is not None:
                await clock.advance((due - clock.now()).total_seconds())
                await dlq.run_retry_cycle(failing())
                found = await dlq.get_task("a")
                assert found is not None
                task = found
        assert waits == DELAYS[policy]


async def test_a_task_is_given_back_as_it_was(dlq: DeadLetterQueue, clock: ManualClock) -> None:
    task = {"type": "sweep", "n": [1, 2.5, None, True, {"ä": "🚚"}], "empty": {}}
    metadata = {"priority": "low", "slos": {"max_delay_minutes": 15}}
    await dlq.enqueue("wf 🚚", task, ["/a", "/ö"], "Connection timeout", metadata=metadata)
    kept = await dlq.get_task("wf 🚚")
    assert kept is not None
    assert (kept.task, kept.repos, kept.metadata) == (task, ["/a", "/ö"], metadata)
    assert kept.to_dict() == {
        "task_id": "wf 🚚",
        "task": task,
        "repos": ["/a", "/ö"],
        "error": "Connection timeout",
        "failed_at": "2030-01-01T00:00:00Z",
        "retry_count": 0,
        "max_retries": 3,
        "retry_policy": "exponential",
        "next_retry_at": "2030-01-01T00:01:00Z",
        "status": "pending",
        "metadata": metadata,
        "error_category": "network",
        "last_error": "Connection timeout",
        "total_attempts": 1,
        "updated_at": "2030-01-01T00:00:00Z",
    }


async def test_a_full_queue_refuses_and_says_what_to_do(clock: ManualClock) -> None:
    async with DeadLetterQueue(max_size=100, clock=clock) as dlq:
        for number in range(98):
            await enqueued(dlq, f"t{number}")
        await enqueued(dlq, "a")
        await enqueued(dlq, "b")
        with pytest.raises(QueueFull, match=r"'c' was not enqueued.*archive_task.*clear_all.*dlq_max_size"):
            await enqueued(dlq, "c")
        assert (await dlq.get_statistics())["utilization_percent"] == 100
        assert await dlq.archive_task("a")
        await enqueued(dlq, "c")


async def test_many_at_once_do_not_overfill_it(clock: ManualClock, tmp_path: Path) -> None:
    async with DeadLetterQueue(max_size=100, clock=clock, store=tmp_path / "w.db") as dlq:
        answers = await asyncio.gather(*(enqueued(dlq, f"t{n}") for n in range(107)), return_exceptions=True)
        assert sum(isinstance(one, QueueFull) for one in answers) == 7
        assert len(await dlq.list_tasks()) == 100


async def test_the_same_task_again_joins_itself(dlq: DeadLetterQueue, clock: ManualClock) -> None:
    await enqueued(dlq, "a", error="first")
    await clock.advance(60)
    await enqueued(dlq, "a", error="second")
    task = await dlq.get_task("a")
    assert task is not None
    assert (task.error, task.last_error, task.total_attempts) == ("first", "second", 2)
    assert (await dlq.get_statistics())["queue_size"] == 1


async def test_another_task_under_a_known_id_is_refused_and_nothing_lost(dlq: DeadLetterQueue) -> None:
    await enqueued(dlq, "a")
    with pytest.raises(DuplicateTask, match="'a' belongs to another task"):
        await dlq.enqueue("a", {"type": "other"}, REPOS, "x")
    task = await dlq.get_task("a")
    assert task is not None
    assert task.task == {**TASK, "name": "a"}
    await dlq.archive_task("a")
    again = await dlq.enqueue("a", {"type": "other"}, REPOS, "x")
    assert again.task == {"type": "other"}


async def test_while_it_is_being_retried_the_retry_decides(dlq: DeadLetterQueue) -> None:
    async def callback(task: dict[str, Any], repos: list[str]) -> bool:
        async def somebody_else() -> None:
            await enqueued(dlq, "a", error="once more")

        import contextvars

        await asyncio.get_running_loop().create_task(somebody_else(), context=contextvars.Context())
        await enqueued(dlq, "a", error="from within")
        return True

    await enqueued(dlq, "a")
    await dlq.run_retry_cycle(callback)
    assert await is_done(dlq, "a")
    assert (await dlq.get_statistics())["lifetime_stats"]["enqueued_total"] == 1


class Strange:
    pass


BAD = {
    "an object": ({"a": {"b": [0, Strange()]}}, r"task\.a\.b\[1\]: a Strange cannot be kept"),
    "a key": ({1: "x"}, r"task: the key 1 is no text"),
    "no dict": ([1], r"task: it is a list, not a dict"),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_kept_is_named(name: str) -> None:
    task, message = BAD[name]
    async with DeadLetterQueue() as dlq:
        with pytest.raises(BadTask, match=message):
            await dlq.enqueue("a", task, REPOS, "x")  # type: ignore[arg-type]
        assert await dlq.list_tasks() == []


async def test_a_task_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    async with DeadLetterQueue() as dlq:
        with pytest.raises(BadTask, match="nested deeper"):
            await dlq.enqueue("a", loop, REPOS, "x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry_policy": "exponentail"}, "did you mean 'exponential'"),
        ({"retry_policy": 7}, "give a RetryPolicy"),
        ({"retry_policy": lambda n: "1s"}, "register_backoff"),
        ({"error_category": "netwrok"}, "did you mean 'network'"),
        ({"metadata": {"x": Strange()}}, r"metadata\.x: a Strange"),
        ({"metadata": ["x"]}, "metadata: it is a list"),
        ({"max_retries": -1}, "from 0 to 10"),
        ({"max_retries": 11}, "from 0 to 10"),
        ({"max_retries": True}, "from 0 to 10"),
        ({"max_retries": 2.0}, "from 0 to 10"),
        ({"template": "nope"}, "unknown template 'nope'"),
        ({"after": ["a\nb"]}, "line break"),
    ],
)
async def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    async with DeadLetterQueue() as dlq:
        with pytest.raises((UsageError, ConfigError), match=message):
            await enqueued(dlq, "a", **options)
        assert (await dlq.get_statistics())["queue_size"] == 0


@pytest.mark.parametrize("task_id", ["", None, 7])
async def test_a_task_needs_an_id(task_id: Any) -> None:
    async with DeadLetterQueue() as dlq:
        with pytest.raises(UsageError, match="task_id"):
            await dlq.enqueue(task_id, {}, [], "x")


async def test_repos_are_a_list_of_texts() -> None:
    async with DeadLetterQueue() as dlq:
        for repos in ("/one", [1]):
            with pytest.raises(BadTask, match="repos"):
                await dlq.enqueue("a", {}, repos, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"max_size": 0},
        {"max_size": 99},
        {"max_size": 100_001},
        {"max_size": 200.0},
        {"default_max_retries": 11},
        {"default_max_retries": -1},
        {"parallel": 0},
        {"spool": "x.db"},
        {"opensearch_client": object(), "store": "memory://"},
        {"observability_manager": 7},
        {"observability_manager": Strange()},
        {"observability_manager": Strange},
        {"retry_timeout": "0s"},
    ],
)
def test_a_queue_that_cannot_be_is_not_made(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DeadLetterQueue(**options)


@pytest.mark.parametrize("seconds", [0, 9.9, 3601, -1, "60", None, True, float("nan")], ids=str)
async def test_an_interval_that_cannot_be_is_refused(dlq: DeadLetterQueue, seconds: Any) -> None:
    with pytest.raises(ConfigError, match=r"check_interval_seconds=.*from 10 to 3600"):
        await dlq.start_retry_processor(Worker(), check_interval_seconds=seconds)
    assert not (await dlq.get_statistics())["is_processor_running"]


async def test_bounds_hold_wherever_a_value_comes_in(dlq: DeadLetterQueue) -> None:
    with pytest.raises(ConfigError, match="max_size=5: it takes a whole number from 100 to 100000"):
        dlq.max_size = 5
    assert dlq.max_size == 100
    with pytest.raises(UsageError, match="max_retries=11"):
        dlq.register_template(Template(name="often", max_retries=11))
    with pytest.raises(UsageError, match="limit='5'"):
        await dlq.list_tasks(limit="5")  # type: ignore[arg-type]


async def test_a_status_with_a_typo_is_named(dlq: DeadLetterQueue) -> None:
    with pytest.raises(UsageError, match="did you mean 'exhausted'"):
        await dlq.list_tasks("exausted")


async def test_lists_are_newest_first_and_by_category(dlq: DeadLetterQueue, clock: ManualClock) -> None:
    for number in range(7):
        await enqueued(dlq, f"t{number}", error="rate limit" if number % 2 else "timeout")
        await clock.advance(1)
    assert [task.task_id for task in await dlq.list_tasks(limit=3)] == ["t6", "t5", "t4"]
    assert [task.task_id for task in await dlq.list_tasks(error_category="transient")] == ["t5", "t3", "t1"]
    assert await dlq.list_tasks(limit=0) == []


async def test_a_restart_finds_all_that_was_kept(tmp_path: Path, clock: ManualClock) -> None:
    async with DeadLetterQueue(store=tmp_path / "w.db", clock=clock) as first:
        for number in range(5):
            await enqueued(first, f"t{number}", metadata={"n": number})
        before = {task.task_id: task.to_dict() for task in await first.list_tasks()}
    async with DeadLetterQueue(store=f"sqlite:///{tmp_path}/w.db", clock=clock) as second:
        assert {task.task_id: task.to_dict() for task in await second.list_tasks()} == before
        worker = Worker()
        await second.run_retry_cycle(worker)
        assert sorted(worker.seen) == sorted(before)


async def test_clearing_takes_everything_and_what_runs_stays_gone(dlq: DeadLetterQueue) -> None:
    cleared = []

    async def callback(task: dict[str, Any], repos: list[str]) -> bool:
        cleared.append(await dlq.clear_all())
        return False

    await enqueued(dlq, "a")
    await enqueued(dlq, "b", retry_policy=RetryPolicy.NEVER)
    await dlq.run_retry_cycle(callback)
    assert cleared == [2]
    assert await dlq.get_task("a") is None
    assert (await dlq.get_statistics())["queue_size"] == 0


async def test_who_may_not_is_refused() -> None:
    access = RoleManager({"ann": "operator", "vic": "viewer", "ada": "admin"})
    async with DeadLetterQueue(rbac_manager=access, retry_callback=Worker()) as dlq:
        await enqueued(dlq, "a", retry_policy=RetryPolicy.NEVER)
        for user in ("vic", "nobody", None):
            with pytest.raises(AccessDenied, match="retry"):
                await dlq.retry_task("a", user_id=user)
            with pytest.raises(AccessDenied, match="archive"):
                await dlq.archive_task("a", user_id=user)
        with pytest.raises(AccessDenied, match="clear"):
            await dlq.clear_all(user_id="ann")
        assert (await dlq.retry_task("a", user_id="ann"))["success"]
        await enqueued(dlq, "a")
        assert await dlq.archive_task("a", user_id="ann")
        assert await dlq.clear_all(user_id="ada") == 1


async def test_everything_that_happens_is_an_event() -> None:
    seen: list[Event] = []
    async with DeadLetterQueue(observability_manager=seen.append) as dlq:
        await enqueued(dlq, "a", max_retries=1)
        await dlq.run_retry_cycle(failing())
        await dlq.archive_task("a")
    told = [type(one).__name__ for one in seen if not isinstance(one, QueueMeasured)]
    assert told == [
        *("MessageBuried", "TaskEnqueued"),
        *("LettersRetried", "MessageBuried", "TaskExhausted", "BatchSettled", "TaskRetried"),
        "LettersMoved",
    ]
    assert [(one.size, one.most) for one in seen if isinstance(one, QueueMeasured)] == [(0, 10_000), (1, 10_000)]
    assert [one.state for one in seen if isinstance(one, MessageBuried)] == ["pending", "exhausted"]


async def test_a_given_store_stays_open() -> None:
    store, events = MemoryStore(), Events()
    async with DeadLetterQueue(store=store, observability_manager=events) as dlq:
        await enqueued(dlq, "a")
        assert dlq.events is events
    async with DeadLetterQueue(store=store) as dlq:
        assert await status_of(dlq, "a") == "pending"


# -- templates and backoffs of one's own ---------------------------------------------------------------------------


async def test_a_template_is_found_by_what_the_failure_looks_like(dlq: DeadLetterQueue) -> None:
    dlq.register_template(Template(name="quota", text=r"quota of \w+", retry_policy="linear", max_retries=7))
    dlq.register_template(Template(name="git", error_type="GitError", metadata={"on_call_team": "scm"}))
    dlq.register_template(Template(name="slow", task_type="reindex", category="network", retry_policy="never"))
    dlq.register_template(Template(name="by-name", max_retries=9))

    class GitError(Exception):
        pass

    quota = await dlq.enqueue("a", TASK, REPOS, "The QUOTA of disk is used up")
    git = await dlq.enqueue("b", TASK, REPOS, GitError("no"), metadata={"x": 1})
    slow = await dlq.enqueue("c", {"type": "reindex"}, REPOS, "timeout")
    none = await dlq.enqueue("d", TASK, REPOS, "timeout")
    named = await dlq.enqueue("e", TASK, REPOS, "timeout", template="by-name")
    own = await dlq.enqueue("f", TASK, REPOS, "quota of x", retry_policy="immediate", max_retries=1)
    assert (quota.retry_policy, quota.max_retries, quota.metadata) == ("linear", 7, {"template": "quota"})
    assert git.metadata == {"on_call_team": "scm", "template": "git", "x": 1}
    assert (slow.retry_policy, slow.next_retry_at) == ("never", None)
    assert (none.retry_policy, none.metadata) == ("exponential", {})
    assert named.max_retries == 9
    assert (own.retry_policy, own.max_retries, own.metadata) == ("immediate", 1, {"template": "quota"})


@pytest.mark.parametrize(
    "template",
    [
        Template(name="x", text="("),
        Template(name="x", category="netwrok"),
        Template(name="x", retry_policy="sometimes"),
        Template(name="x", max_retries=-1),
    ],
)
def test_a_template_that_cannot_be_is_refused(template: Template) -> None:
    with pytest.raises((ConfigError, UsageError)):
        DeadLetterQueue().register_template(template)


async def test_a_backoff_of_ones_own_is_kept_by_its_name(tmp_path: Path, clock: ManualClock) -> None:
    def fibonacci(retries: int) -> timedelta | None:
        return timedelta(minutes=[1, 1, 2, 3, 5][retries]) if retries < 5 else None

    async with DeadLetterQueue(store=tmp_path / "w.db", clock=clock) as dlq:
        task = await dlq.enqueue("a", TASK, REPOS, "x", retry_policy=fibonacci, max_retries=10)
        assert (task.retry_policy, task.next_retry_at) == ("fibonacci", clock.now() + timedelta(minutes=1))
    async with DeadLetterQueue(store=tmp_path / "w.db", clock=clock) as dlq:
        dlq.register_backoff("fibonacci", fibonacci)
        waits = []
        while (found := await dlq.get_task("a")) is not None and found.next_retry_at is not None:
            waits.append((found.next_retry_at - clock.now()) / timedelta(minutes=1))
            await clock.advance((found.next_retry_at - clock.now()).total_seconds())
            await dlq.run_retry_cycle(failing())
        assert waits == [1, 1, 2, 3, 5]
        assert await status_of(dlq, "a") == "exhausted"


async def test_a_backoff_that_is_not_registered_here_waits_as_the_default_does(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with DeadLetterQueue(store=tmp_path / "w.db", clock=clock) as dlq:
        dlq.register_backoff("mine", lambda retries: "7m")
        await dlq.enqueue("a", TASK, REPOS, "x", retry_policy="mine")
    async with DeadLetterQueue(store=tmp_path / "w.db", clock=clock) as dlq:
        await clock.advance(7 * 60)
        await dlq.run_retry_cycle(failing())
        task = await dlq.get_task("a")
    assert task is not None
    assert task.next_retry_at == clock.now() + timedelta(minutes=2)
    assert "no backoff 'mine' is registered" in caplog.text


def test_a_name_that_is_taken_is_refused() -> None:
    dlq = DeadLetterQueue()
    for name in ("linear", ""):
        with pytest.raises(ConfigError):
            dlq.register_backoff(name, lambda retries: "1s")


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS.keys())
def test_the_shape_loads_what_it_dumped(letter: Letter) -> None:
    shape: Shape = WorkflowShape()
    assert shape.load(shape.dump(letter)) == letter
    assert shape.decode(shape.encode(letter)) == letter


async def test_the_shape_has_exactly_the_documents_fields() -> None:
    async with DeadLetterQueue() as dlq:
        task = await enqueued(dlq, "a", metadata={"x": 1})
    document = WorkflowShape().dump(task.letter)
    assert {name: value for name, value in document.items() if name != "redrive"} == task.to_dict()
    assert set(task.to_dict()) == set(WorkflowShape.mapping)
    assert "body" not in document["redrive"]["message"]
    assert WorkflowShape().load(document) == task.letter


def test_every_state_of_a_letter_is_a_status() -> None:
    assert sorted(state for status in DeadLetterStatus for state in status.states) == sorted(State)
