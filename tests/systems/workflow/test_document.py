"""The examples of the workflow document, with nothing changed but where their names are imported from."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import pytest_asyncio

from redrive.systems.workflow import (
    DeadLetterQueue,
    DeadLetterStatus,
    DLQIntegrationStrategy,
    ErrorCategory,
    FailedTask,
    RetryPolicy,
    RoleManager,
    WorkflowApp,
    WorkflowSettings,
    create_dlq_integration,
)
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until


class Adapter:
    """Fails until it is mended."""

    def __init__(self) -> None:
        self.error: Exception | None = ConnectionError("Connection timeout")
        self.runs = 0

    async def __call__(self, task: dict[str, Any], repo: str) -> dict[str, Any]:
        self.runs += 1
        if self.error is not None:
            raise self.error
        return {"swept": repo}


@pytest.fixture
def adapter() -> Adapter:
    return Adapter()


@pytest_asyncio.fixture
async def app(adapter: Adapter) -> AsyncIterator[WorkflowApp]:
    async with WorkflowApp(WorkflowSettings(), adapters={"llamaindex": adapter}) as app:
        yield app


async def test_1_automatic_integration(app: WorkflowApp, adapter: Adapter, capsys: pytest.CaptureFixture[str]) -> None:
    async def retry_callback(task: dict[str, Any], repos: list[str]) -> Any:
        """Callback for retrying failed workflows."""
        return await app.execute_workflow(task, "llamaindex", repos)

    await app.start_dlq_processor()

    result = await app.execute_workflow_parallel(
        task={"type": "code_sweep"},
        adapter_name="llamaindex",
        repos=["/path/to/repo"]
    )  # fmt: skip

    if result["status"] == "failed" and result.get("dlq_enqueued"):
        print(f"Workflow enqueued: {result['dlq_task_id']}")
    assert capsys.readouterr().out == f"Workflow enqueued: {result['dlq_task_id']}\n"

    await app.stop_dlq_processor()
    task = await app.dlq.get_task(result["dlq_task_id"])
    assert task is not None
    assert (task.task, task.repos) == ({"type": "code_sweep", "adapter": "llamaindex"}, ["/path/to/repo"])
    assert task.error_category is ErrorCategory.NETWORK
    assert (await retry_callback(task.task, task.repos))["status"] == "failed"


async def test_2_manual_operations(app: WorkflowApp, adapter: Adapter, capsys: pytest.CaptureFixture[str]) -> None:
    await app.dlq.enqueue(
        task_id="wf_abc123",
        task={"type": "code_sweep"},
        repos=["/path/to/repo"],
        error="Connection timeout",
        retry_policy=RetryPolicy.EXPONENTIAL,
        max_retries=5,
        metadata={"priority": "high"}
    )  # fmt: skip

    pending_tasks = await app.dlq.list_tasks(
        status=DeadLetterStatus.PENDING,
        limit=100
    )  # fmt: skip
    assert [task.task_id for task in pending_tasks] == ["wf_abc123"]

    task = await app.dlq.get_task("wf_abc123")
    if task:
        print(f"Task failed at: {task.failed_at}")
        print(f"Retry count: {task.retry_count}/{task.max_retries}")
        print(f"Next retry at: {task.next_retry_at}")
    assert task is not None
    assert task.next_retry_at == task.failed_at + timedelta(minutes=1)
    assert "Retry count: 0/5" in capsys.readouterr().out

    result = await app.dlq.retry_task("wf_abc123")
    if result["success"]:
        print("Task succeeded on retry")
    else:
        print(f"Retry failed: {result['error']}")
    assert capsys.readouterr().out == "Retry failed: Connection timeout\n"

    adapter.error = None
    assert (await app.dlq.retry_task("wf_abc123"))["success"]
    await app.dlq.archive_task("wf_abc123")
    assert await app.dlq.list_tasks() == []
    assert await app.dlq.get_task("wf_abc123") is None, "what succeeded is not in the queue any more"


async def test_3_statistics(app: WorkflowApp, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(15):
        await app.dlq.enqueue(f"wf_{number}", {}, [], "Connection timeout")
    stats = await app.dlq.get_statistics()

    print(f"Queue size: {stats['queue_size']}/{stats['max_size']}")
    print(f"Utilization: {stats['utilization_percent']}%")
    print(f"Status breakdown: {stats['status_breakdown']}")
    print(f"Error categories: {stats['error_categories']}")
    print(f"Retry policies: {stats['retry_policies']}")
    print(f"Lifetime stats: {stats['lifetime_stats']}")
    assert capsys.readouterr().out.splitlines() == [
        "Queue size: 15/10000",
        "Utilization: 0.15%",
        "Status breakdown: {'pending': 15, 'retrying': 0, 'exhausted': 0, 'resolved': 0, 'archived': 0}",
        "Error categories: {'network': 15}",
        "Retry policies: {'exponential': 15}",
        "Lifetime stats: {'enqueued_total': 15, 'retry_success': 0, 'retry_failed': 0, 'exhausted': 0, "
        "'manually_retried': 0, 'archived': 0}",
    ]


SELECTED = [
    (RuntimeError("rate limit exceeded"), RetryPolicy.EXPONENTIAL),
    (ConnectionResetError("reset by peer"), RetryPolicy.EXPONENTIAL),
    (OSError(28, "No space left on device"), RetryPolicy.LINEAR),
    (PermissionError("access denied"), None),
    (ValueError("malformed input"), None),
    (RuntimeError("something nobody knows"), None),
]


@pytest.mark.parametrize(("error", "policy"), SELECTED, ids=lambda one: str(one))
async def test_4_strategies(app: WorkflowApp, adapter: Adapter, error: Exception, policy: RetryPolicy | None) -> None:
    app.dlq_integration.set_strategy(DLQIntegrationStrategy.AUTOMATIC)
    adapter.error = error
    result = await app.execute_workflow_parallel({"type": "x"}, "llamaindex", ["/repo"])
    assert result["dlq_enqueued"]
    task = await app.dlq.get_task(result["dlq_task_id"])
    assert task is not None
    assert task.retry_policy == RetryPolicy.EXPONENTIAL

    app.dlq_integration.set_strategy(DLQIntegrationStrategy.SELECTIVE)
    result = await app.execute_workflow_parallel({"type": "x"}, "llamaindex", ["/repo"])
    assert result["dlq_enqueued"] is (policy is not None)
    if policy is not None:
        task = await app.dlq.get_task(result["dlq_task_id"])
        assert task is not None
        assert task.retry_policy == policy

    for strategy in (DLQIntegrationStrategy.MANUAL, DLQIntegrationStrategy.DISABLED):
        app.dlq_integration.set_strategy(strategy)
        result = await app.execute_workflow_parallel({"type": "x"}, "llamaindex", ["/repo"])
        assert (result["dlq_enqueued"], result["dlq_task_id"]) == (False, None)


async def test_5_custom_retry_logic(app: WorkflowApp) -> None:
    async def custom_enqueue_handler(task_id: str, task: Any, repos: Any, error: Exception) -> FailedTask | None:
        """Custom error handling with DLQ."""
        error_category = await app.error_recovery_manager.classify_error(error)

        if error_category == ErrorCategory.TRANSIENT:
            retry_policy = RetryPolicy.EXPONENTIAL
            max_retries = 5
        elif error_category == ErrorCategory.NETWORK:
            retry_policy = RetryPolicy.EXPONENTIAL
            max_retries = 3
        elif error_category == ErrorCategory.RESOURCE:
            retry_policy = RetryPolicy.LINEAR
            max_retries = 2
        else:
            return None

        failed_task = await app.dlq.enqueue(
            task_id=task_id,
            task=task,
            repos=repos,
            error=str(error),
            retry_policy=retry_policy,
            max_retries=max_retries,
            error_category=error_category.value,
            metadata={"handler": "custom"}
        )  # fmt: skip

        return failed_task  # noqa: RET504 - as the document writes it

    kept = await custom_enqueue_handler("a", {"type": "x"}, ["/r"], MemoryError("no more"))
    assert kept is not None
    assert (kept.retry_policy, kept.max_retries, kept.error_category) == ("linear", 2, "resource")
    assert kept.metadata == {"handler": "custom"}
    assert await custom_enqueue_handler("b", {"type": "x"}, ["/r"], ValueError("bad")) is None


async def test_an_app_of_their_own_is_integrated_as_the_document_does_it() -> None:
    class MahavishnuApp:
        def __init__(self) -> None:
            self.config = WorkflowSettings()
            self.opensearch_integration = None
            self.observability = None
            if self.config.dlq_enabled:
                self.dlq = DeadLetterQueue(
                    max_size=self.config.dlq_max_size,
                    opensearch_client=self.opensearch_integration.client if self.opensearch_integration else None,
                    observability_manager=self.observability,
                )
                self.dlq_integration = create_dlq_integration(self)

        async def execute_workflow_parallel(self, task: Any, adapter_name: str, repos: Any) -> dict[str, Any]:
            return {"status": "failed", "error": "rate limit", "workflow_id": "wf_theirs"}

    app = MahavishnuApp()
    result = await app.execute_workflow_parallel(task={"type": "x"}, adapter_name="a", repos=["/r"])
    assert (result["dlq_enqueued"], result["dlq_task_id"]) == (True, "wf_theirs")
    await app.dlq.aclose()


async def test_a_full_queue_is_looked_at_archived_and_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    async with WorkflowApp(WorkflowSettings(dlq_max_size=100)) as app:
        for number in range(90):
            await app.dlq.enqueue(f"wf_{number}", {}, [], "x", retry_policy=RetryPolicy.IMMEDIATE, max_retries=1)
        await app.dlq.run_retry_cycle(lambda task, repos: False)

        stats = await app.dlq.get_statistics()
        print(f"Queue utilization: {stats['utilization_percent']}%")
        exhausted_tasks = await app.dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)
        for task in exhausted_tasks[:80]:
            await app.dlq.archive_task(task.task_id)
        assert (await app.dlq.get_statistics())["queue_size"] == 10

        count = await app.dlq.clear_all()
        print(f"Cleared {count} tasks")
        assert capsys.readouterr().out == "Queue utilization: 90.0%\nCleared 90 tasks\n"


async def test_retries_that_do_not_work_are_found_out(app: WorkflowApp, capsys: pytest.CaptureFixture[str]) -> None:
    stats = await app.dlq.get_statistics()
    if not stats["is_processor_running"]:
        print("Retry processor is not running!")
        await app.start_dlq_processor()
    print(f"Retry interval: {stats['retry_interval_seconds']}s")
    assert capsys.readouterr().out == "Retry processor is not running!\nRetry interval: 60s\n"
    assert (await app.dlq.get_statistics())["is_processor_running"]
    result = await app.dlq.retry_task("wf_abc123")
    assert result["error"].startswith("there is no task 'wf_abc123'")


async def test_exhausted_tasks_are_counted_by_category(dlq: DeadLetterQueue) -> None:
    await dlq.enqueue("a", {}, [], "rate limit", retry_policy=RetryPolicy.IMMEDIATE, max_retries=1)
    await dlq.run_retry_cycle(lambda task, repos: {"success": False, "error": "rate limit"})
    exhausted_tasks = await dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)
    error_categories = Counter(task.error_category for task in exhausted_tasks if task.error_category)
    assert error_categories == {"transient": 1}
    assert str(error_categories) == "Counter({'transient': 1})"


async def test_the_monitor_warns(dlq: DeadLetterQueue, capsys: pytest.CaptureFixture[str]) -> None:
    class app:
        pass

    app.dlq = dlq  # type: ignore[attr-defined]

    async def monitor_dlq() -> None:
        while True:
            stats = await app.dlq.get_statistics()  # type: ignore[attr-defined]

            if stats["utilization_percent"] > 80:
                print(f"WARNING: DLQ is {stats['utilization_percent']}% full!")

            exhausted_count = stats["status_breakdown"]["exhausted"]
            if exhausted_count > 80:
                print(f"WARNING: {exhausted_count} exhausted tasks in DLQ!")

            total_retries = stats["lifetime_stats"]["retry_success"] + stats["lifetime_stats"]["retry_failed"]
            if total_retries > 0:
                success_rate = stats["lifetime_stats"]["retry_success"] / total_retries
                if success_rate < 0.5:
                    print(f"WARNING: Low retry success rate: {success_rate:.1%}")

            await asyncio.sleep(300)  # Check every 5 minutes

    for number in range(85):
        await dlq.enqueue(f"wf_{number}", {}, [], "x", retry_policy=RetryPolicy.IMMEDIATE, max_retries=1)
    await dlq.run_retry_cycle(lambda task, repos: False)
    monitor = asyncio.create_task(monitor_dlq())
    printed = ""

    def all_there() -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return "0.0%" in printed

    await until(all_there, what="the monitor's warnings")
    monitor.cancel()
    assert "WARNING: DLQ is 85.0% full!" in printed
    assert "WARNING: 85 exhausted tasks in DLQ!" in printed


async def test_old_exhausted_tasks_are_archived(clock: ManualClock, dlq: DeadLetterQueue) -> None:
    await dlq.enqueue("old", {}, [], "x", retry_policy=RetryPolicy.IMMEDIATE, max_retries=1)
    await dlq.run_retry_cycle(lambda task, repos: False)
    await clock.advance(8 * 86_400)
    await dlq.enqueue("new", {}, [], "x", retry_policy=RetryPolicy.IMMEDIATE, max_retries=1)
    await dlq.run_retry_cycle(lambda task, repos: False)

    cutoff = clock.now() - timedelta(days=7)
    assert cutoff.tzinfo is not None
    assert datetime.now(timezone.utc) is not None  # noqa: UP017 - as the document writes it
    exhausted_tasks = await dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)
    for task in exhausted_tasks:
        if task.failed_at < cutoff:
            await dlq.archive_task(task.task_id)
    assert [task.task_id for task in await dlq.list_tasks()] == ["new"]


async def test_access_is_checked_as_the_document_does_it() -> None:
    rbac_manager = RoleManager({"ann": "operator", "vic": "viewer"})

    async def check_dlq_access(user_id: str, operation: str) -> bool:
        if operation == "retry":
            return await rbac_manager.check_permission(user_id, "dlq", "retry")
        elif operation == "archive":  # noqa: RET505 - as the document writes it
            return await rbac_manager.check_permission(user_id, "dlq", "archive")
        return False

    assert await check_dlq_access("ann", "retry")
    assert await check_dlq_access("ann", "archive")
    assert not await check_dlq_access("vic", "retry")
    assert not await check_dlq_access("nobody", "archive")
