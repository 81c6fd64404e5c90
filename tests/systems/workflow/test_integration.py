"""Which executions are enqueued, and the app that runs them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from redrive.errors import ConfigError, UsageError
from redrive.systems.workflow import (
    DeadLetterQueue,
    DLQIntegrationStrategy,
    RetryPolicy,
    WorkflowApp,
    WorkflowSettings,
    create_dlq_integration,
)
from redrive.systems.workflow.calls import FAILED
from redrive.testing.waiting import until
from tests.systems.workflow.helpers import status_of


class Sweep:
    """An adapter: the repositories named here fail."""

    def __init__(self, **broken: Exception) -> None:
        self.broken = broken
        self.seen: list[str] = []
        self.running = self.most = 0

    async def __call__(self, task: dict[str, Any], repo: str) -> str:
        self.seen.append(repo)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if repo in self.broken:
            raise self.broken[repo]
        return f"swept {repo}"


def _app(adapter: Any, **options: Any) -> WorkflowApp:
    return WorkflowApp(WorkflowSettings(), adapters={"sweep": adapter}, **options)


async def test_a_workflow_runs_over_its_repositories_with_a_bound() -> None:
    sweep = Sweep()
    async with _app(sweep, parallel=3) as app:
        repos = [f"r{number}" for number in range(10)]
        result = await app.execute_workflow_parallel({"type": "x"}, "sweep", repos)
        assert (result["status"], result["results"]) == ("completed", {repo: f"swept {repo}" for repo in repos})
        assert "dlq_enqueued" not in result
        assert sweep.most == 3


async def test_what_failed_in_part_is_enqueued_in_part() -> None:
    async with _app(Sweep(b=TimeoutError("too slow"))) as app:
        result = await app.execute_workflow_parallel({"type": "x"}, "sweep", ["a", "b", "c"])
        assert (result["status"], result["errors"]) == ("partial", {"b": "TimeoutError: too slow"})
        assert result["results"] == {"a": "swept a", "c": "swept c"}
        task = await app.dlq.get_task(result["dlq_task_id"])
        assert task is not None
        assert (task.repos, task.error_category, task.letter.last.type) == (["b"], "network", "TimeoutError")


@pytest.mark.parametrize("status", sorted(FAILED))
async def test_what_a_retry_calls_failed_an_execution_does_too(status: str) -> None:
    """There is one list of them."""

    class Theirs:
        dlq = DeadLetterQueue()

        async def execute_workflow(self, task: dict[str, Any], adapter_name: str, repos: list[str]) -> dict[str, Any]:
            return {"workflow_id": "wf", "status": status.upper()}

    app = Theirs()
    create_dlq_integration(app)
    assert (await app.execute_workflow({}, "sweep", []))["dlq_enqueued"]
    answer = {"status": status.upper()}
    app.dlq.retry_callback = lambda task, repos: answer
    assert not (await app.dlq.retry_task("wf"))["success"]


async def test_a_retry_that_fails_again_is_no_second_task() -> None:
    sweep = Sweep(a=ConnectionError("refused"))
    async with _app(sweep) as app:
        result = await app.execute_workflow_parallel({"type": "x"}, "sweep", ["a"])
        answer = await app.dlq.retry_task(result["dlq_task_id"])
        assert (answer["success"], answer["error"]) == (False, "refused")
        assert (answer["result"]["dlq_enqueued"], answer["result"]["dlq_task_id"]) == (False, result["dlq_task_id"])
        [task] = await app.dlq.list_tasks()
        assert (task.task_id, task.total_attempts) == (result["dlq_task_id"], 2)
        sweep.broken.clear()
        assert (await app.dlq.retry_task(task.task_id))["result"]["status"] == "completed"
        assert await app.dlq.list_tasks() == []


async def test_an_execution_that_raises_is_enqueued_once_and_still_raises() -> None:
    async with _app(Sweep()) as app:
        with pytest.raises(UsageError, match="unknown adapter 'sweeep': did you mean 'sweep'") as caught:
            await app.execute_workflow({"type": "x"}, "sweeep", ["a"])
        [task] = await app.dlq.list_tasks()
        assert task.task_id == caught.value.dlq_task_id  # type: ignore[attr-defined]
        assert task.task["adapter"] == "sweeep"


async def _slow(task: dict[str, Any], repo: str) -> None:
    await asyncio.Event().wait()


async def test_an_execution_that_a_timeout_cancels_is_enqueued() -> None:
    async with _app(_slow) as app:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(app.execute_workflow_parallel({"type": "x"}, "sweep", ["a", "b"]), 0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await app.execute_workflow({"type": "y"}, "sweep", ["c"])
        tasks = sorted(await app.dlq.list_tasks(), key=lambda task: str(task.task["type"]))
        assert [(task.task["type"], task.repos) for task in tasks] == [("x", ["a", "b"]), ("y", ["c"])]
        assert {(task.error_category, task.error) for task in tasks} == {
            ("network", "the execution was cancelled before it ended, as a timeout does")
        }


async def test_who_cancels_again_and_again_does_not_lose_it(tmp_path: Path) -> None:
    async with _app(_slow, store=tmp_path / "w.db") as app:
        running = asyncio.create_task(app.execute_workflow({"type": "x"}, "sweep", ["a"]))
        await asyncio.sleep(0)
        while not running.done():
            running.cancel()
            await asyncio.sleep(0)
        assert running.cancelled()

        async def is_kept() -> bool:
            return len(await app.dlq.list_tasks()) == 1

        await until(is_kept, timeout=20)
        await app.dlq.get_statistics()
        assert await is_kept(), "and once"


async def test_an_adapter_that_is_cancelled_from_within_has_failed() -> None:
    async with _app(Sweep(b=asyncio.CancelledError("by a scope of its own"))) as app:  # type: ignore[arg-type]
        result = await app.execute_workflow_parallel({"type": "x"}, "sweep", ["a", "b"])
        assert (result["status"], result["failed_repos"], result["dlq_enqueued"]) == ("partial", ["b"], True)


async def test_a_retry_that_is_cancelled_is_no_second_task(tmp_path: Path) -> None:
    async with _app(Sweep(a=ConnectionError("refused"))) as app:
        result = await app.execute_workflow_parallel({"type": "x"}, "sweep", ["a"])
        app.register_adapter("sweep", _slow)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(app.dlq.retry_task(result["dlq_task_id"]), 0.01)
        [task] = await app.dlq.list_tasks()
        assert (task.task_id, task.status) == (result["dlq_task_id"], "pending")


async def test_a_queue_that_is_full_does_not_hide_why_a_workflow_failed() -> None:
    app = _app(Sweep(a=ValueError("bad")))
    app.dlq.max_size = 100
    for number in range(99):
        await app.dlq.enqueue(f"t{number}", {}, [], "x")
    first = await app.execute_workflow_parallel({"type": "x"}, "sweep", ["a"])
    second = await app.execute_workflow_parallel({"type": "x"}, "sweep", ["a"])
    assert (first["dlq_enqueued"], second["dlq_enqueued"]) == (True, False)
    assert second["error"] == "ValueError: bad"
    assert "as many as it may" in second["dlq_error"]
    await app.aclose()


async def test_manual_enqueues_what_it_is_told_to_and_disabled_does_not() -> None:
    async with _app(Sweep()) as app:
        for strategy, kept in (("manual", True), (DLQIntegrationStrategy.DISABLED, False)):
            app.dlq_integration.set_strategy(strategy)
            assert app.dlq_integration.strategy == strategy
            task = await app.dlq_integration.enqueue(f"by {strategy}", {}, [], "x", retry_policy=RetryPolicy.NEVER)
            assert (task is not None) is kept
        with pytest.raises(UsageError, match="did you mean 'selective'"):
            app.dlq_integration.set_strategy("seletive")


async def test_a_task_that_cannot_be_kept_is_told_of_in_the_result() -> None:
    async with _app(Sweep(a=ValueError("bad"))) as app:
        result = await app.execute_workflow_parallel({"type": object()}, "sweep", ["a"])
        assert result["dlq_error"].startswith("task.type: a object cannot be kept")


async def test_without_a_queue_workflows_run_all_the_same() -> None:
    async with WorkflowApp(WorkflowSettings(dlq_enabled=False), adapters={"sweep": Sweep(a=ValueError("x"))}) as app:
        result = await app.execute_workflow_parallel({}, "sweep", ["a"])
        assert result["status"] == "failed"
        assert [getattr(app, name) for name in ("dlq", "dlq_integration")] == [None, None]
        await app.start_dlq_processor()
        await app.stop_dlq_processor()
        with pytest.raises(ConfigError, match="the app has no queue"):
            create_dlq_integration(app)


async def test_the_processor_of_the_app_retries_until_it_works(tmp_path: Path) -> None:
    sweep = Sweep(a=ConnectionError("refused"))
    settings = WorkflowSettings(dlq_default_retry_policy="immediate")
    async with WorkflowApp(settings, adapters={"sweep": sweep}, store=tmp_path / "w.db") as app:
        result = await app.execute_workflow_parallel({"type": "x"}, "sweep", ["a"])
        sweep.broken.clear()
        await app.start_dlq_processor()
        assert (await app.dlq.get_statistics())["retry_interval_seconds"] == 60

        async def resolved() -> bool:
            return await status_of(app.dlq, result["dlq_task_id"]) == "resolved"

        await until(resolved)
        await app.stop_dlq_processor()


async def test_a_processor_that_is_switched_off_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with WorkflowApp(WorkflowSettings(dlq_retry_processor_enabled=False)) as app:
        await app.start_dlq_processor()
        assert not (await app.dlq.get_statistics())["is_processor_running"]
    assert "DLQ retry processor disabled in configuration" in caplog.text


async def test_any_object_with_a_queue_can_be_integrated() -> None:
    class Theirs:
        dlq = DeadLetterQueue()

    integration = create_dlq_integration(Theirs(), strategy="selective")
    assert await integration.handle_failure("a", {}, [], "malformed") is None
    kept = await integration.handle_failure("b", {}, [], "no space left on device")
    assert kept is not None
    assert kept.retry_policy == "linear"


# -- settings ----------------------------------------------------------------------------------------------------------

YAML = """
# Dead Letter Queue configuration
dlq_enabled: true
dlq_max_size: 500
dlq_default_retry_policy: linear  # Options: never, linear, exponential, immediate
dlq_default_max_retries: 4
dlq_retry_processor_enabled: true
dlq_retry_interval_seconds: 30
server_name: not ours
"""


def test_the_file_and_the_environment_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "mahavishnu.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAHAVISHNU_DLQ_MAX_SIZE", "600")
    monkeypatch.setenv("MAHAVISHNU_DLQ_RETRY_PROCESSOR_ENABLED", "false")
    settings = WorkflowApp().config
    assert settings == WorkflowSettings(
        dlq_max_size=600,
        dlq_default_retry_policy="linear",
        dlq_default_max_retries=4,
        dlq_retry_processor_enabled=False,
        dlq_retry_interval_seconds=30,
    )


def test_without_either_the_documents_defaults_hold() -> None:
    assert asdict(WorkflowSettings.load(environ={})) == {
        "dlq_enabled": True,
        "dlq_max_size": 10000,
        "dlq_default_retry_policy": "exponential",
        "dlq_default_max_retries": 3,
        "dlq_retry_processor_enabled": True,
        "dlq_retry_interval_seconds": 60,
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MAX_SIZE", "99", r"dlq_max_size = 99 .*MAHAVISHNU_DLQ_MAX_SIZE.*from 100 to 100000"),
        ("MAX_SIZE", "100001", "dlq_max_size .*from 100 to 100000"),
        ("DEFAULT_MAX_RETRIES", "11", "dlq_default_max_retries .*from 0 to 10"),
        ("RETRY_INTERVAL_SECONDS", "9", "from 10 to 3600"),
        ("RETRY_INTERVAL_SECONDS", "3601", "from 10 to 3600"),
        ("RETRY_INTERVAL_SECONDS", "soon", "dlq_retry_interval_seconds = 'soon' .*a whole number"),
        ("DEFAULT_RETRY_POLICY", "exponentail", "did you mean 'exponential'"),
        ("ENABLED", "perhaps", "dlq_enabled = 'perhaps' .*true or false"),
        ("MAX_SIZ", "100", "unknown setting 'dlq_max_siz': did you mean 'dlq_max_size'"),
    ],
)
def test_a_setting_that_is_wrong_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkflowSettings.load(environ={f"MAHAVISHNU_DLQ_{name}": value})


def test_a_setting_that_is_wrong_in_a_program_or_a_file_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dlq_max_size = 5: it takes a whole number from 100 to 100000"):
        WorkflowSettings(dlq_max_size=5)
    path = tmp_path / "m.yaml"
    path.write_text("dlq_enabled: perhaps")
    with pytest.raises(ConfigError, match=r"dlq_enabled = 'perhaps' in .*m\.yaml: it takes true or false"):
        WorkflowSettings.load(path, environ={})


@pytest.mark.parametrize(
    ("text", "message"), [("dlq: [", "cannot be read"), ("- x", "keys with values"), (None, "cannot be read")]
)
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "m.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        WorkflowSettings.load(path, environ={})
