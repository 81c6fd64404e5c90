"""Between an app that runs workflows and the queue that keeps those that fail."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from redrive.clock import SystemClock
from redrive.errors import ConfigError, UsageError, nearest
from redrive.model import Category
from redrive.systems.workflow.calls import CURRENT, as_error, error_in, has_failed_status
from redrive.systems.workflow.policies import POLICY_OF, AnyPolicy, RetryPolicy, Word
from redrive.systems.workflow.queue import DeadLetterQueue
from redrive.systems.workflow.task import FailedTask

log = logging.getLogger("redrive")


class DLQIntegrationStrategy(Word):
    """Which failed workflows are enqueued."""

    AUTOMATIC = "automatic"  # all of them, with the default policy
    SELECTIVE = "selective"  # those whose category is worth a retry, with its policy
    MANUAL = "manual"  # only those that somebody enqueues
    DISABLED = "disabled"  # none


class CancelledExecution(TimeoutError):
    """The execution was cancelled before it ended, as a timeout around it does. It may well succeed next time."""

    def __init__(self) -> None:
        super().__init__("the execution was cancelled before it ended, as a timeout does")


class HasQueue(Protocol):
    """What an app has to have. `execute_workflow_parallel`, if it has that, is watched from then on."""

    dlq: DeadLetterQueue


class DLQIntegration:
    """Watches an app's executions, and enqueues those that fail as its strategy says."""

    def __init__(self, app: HasQueue, strategy: DLQIntegrationStrategy | str = DLQIntegrationStrategy.AUTOMATIC):
        self._app = app
        self._strategy = _strategy(strategy)
        self._clock = SystemClock()
        self._capturing: set[asyncio.Future[dict[str, Any]]] = set()

    @property
    def strategy(self) -> DLQIntegrationStrategy:
        return self._strategy

    def set_strategy(self, strategy: DLQIntegrationStrategy | str) -> None:
        self._strategy = _strategy(strategy)

    async def handle_failure(
        self,
        task_id: str,
        task: Mapping[str, Any],
        repos: Sequence[str],
        error: str | BaseException,
        metadata: Mapping[str, Any] | None = None,
    ) -> FailedTask | None:
        """What the strategy makes of it: the task as it was enqueued, or None.

        A retry that fails again is not enqueued a second time: its own task learns of it.
        """
        if self._strategy in (DLQIntegrationStrategy.MANUAL, DLQIntegrationStrategy.DISABLED):
            return None
        if CURRENT.get() is not None:
            return None
        policy: AnyPolicy | None = None
        if self._strategy is DLQIntegrationStrategy.SELECTIVE:
            category = self.category_of(error)
            policy = POLICY_OF[category]
            if policy is RetryPolicy.NEVER:
                return None
        return await self._app.dlq.enqueue(task_id, task, repos, error, retry_policy=policy, metadata=metadata)

    async def enqueue(
        self, task_id: str, task: Mapping[str, Any], repos: Sequence[str], error: str | BaseException, **options: Any
    ) -> FailedTask | None:
        """Because somebody says so: under every strategy but DISABLED."""
        if self._strategy is DLQIntegrationStrategy.DISABLED:
            return None
        return await self._app.dlq.enqueue(task_id, task, repos, error, **options)

    def category_of(self, error: str | BaseException) -> Category:
        """What kind of trouble it is."""
        return self._app.dlq.classifier(as_error(error)).category

    def watch(self, execute: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The same function; a result that failed also says `dlq_enqueued` and `dlq_task_id`, and so does an error."""

        @functools.wraps(execute)
        async def watched(
            task: Mapping[str, Any], adapter_name: str, repos: Sequence[str], *rest: Any, **more: Any
        ) -> Any:
            try:
                result = await execute(task, adapter_name, repos, *rest, **more)
            except (Exception, asyncio.CancelledError) as error:
                if not hasattr(error, "dlq_task_id"):  # one execution may run inside another
                    await self._capture(task, adapter_name, repos, error)
                raise
            if not _has_failed(result) or "dlq_enqueued" in result:
                return result
            left = result.get("failed_repos") or repos
            return {**result, **await self._fate(self._id(result), task, adapter_name, left, error_in(result))}

        return watched

    async def _capture(
        self, task: Mapping[str, Any], adapter: str, repos: Sequence[str], error: BaseException
    ) -> None:  # fmt: skip
        """Enqueue an execution that raised, or that somebody cancelled, as a timeout around it does.

        Whoever cancels once more, because he has no time to wait, ends the waiting and not the enqueueing.
        """
        why = CancelledExecution() if isinstance(error, asyncio.CancelledError) else error
        task_id = self._id({})
        capturing = asyncio.ensure_future(self._fate(task_id, task, adapter, repos, why))
        self._capturing.add(capturing)
        capturing.add_done_callback(self._capturing.discard)
        try:
            fate = await asyncio.shield(capturing)
        except asyncio.CancelledError as again:
            again.dlq_task_id = task_id  # type: ignore[attr-defined]
            raise
        error.dlq_task_id = fate["dlq_task_id"]  # type: ignore[attr-defined]

    async def aclose(self) -> None:
        """Wait for executions that are just being enqueued."""
        if self._capturing:
            await asyncio.wait(self._capturing)

    async def _fate(
        self, task_id: str, task: Mapping[str, Any], adapter: str, repos: Sequence[str], error: str | BaseException
    ) -> dict[str, Any]:
        """What became of a failure, for the result. A queue that is full or away never hides why a workflow failed."""
        current = CURRENT.get()
        if current is not None:
            return {"dlq_enqueued": False, "dlq_task_id": current.message.id}
        try:
            kept = await self.handle_failure(task_id, {**task, "adapter": adapter}, repos, error)
        except Exception as problem:
            log.error("workflow %s failed and could not be enqueued: %s", task_id, problem)
            return {"dlq_enqueued": False, "dlq_task_id": None, "dlq_error": str(problem)}
        return {"dlq_enqueued": kept is not None, "dlq_task_id": None if kept is None else kept.task_id}

    def _id(self, result: Mapping[str, Any]) -> str:
        return str(result.get("workflow_id") or result.get("id") or f"wf_{self._clock.new_id()}")


def _has_failed(result: Any) -> bool:
    return isinstance(result, dict) and has_failed_status(result)


def create_dlq_integration(
    app: HasQueue, strategy: DLQIntegrationStrategy | str = DLQIntegrationStrategy.AUTOMATIC
) -> DLQIntegration:
    """Watch that app: from now on its failed executions are enqueued, as the strategy says."""
    if getattr(app, "dlq", None) is None:
        raise ConfigError("the app has no queue: give it one first, app.dlq = DeadLetterQueue(…)")
    integration = DLQIntegration(app, strategy)
    for name in ("execute_workflow_parallel", "execute_workflow"):
        execute = getattr(app, name, None)
        if execute is not None:
            setattr(app, name, integration.watch(execute))
    return integration


def _strategy(name: DLQIntegrationStrategy | str) -> DLQIntegrationStrategy:
    try:
        return DLQIntegrationStrategy(name)
    except ValueError:
        raise UsageError(f"unknown strategy {name!r}{nearest(str(name), map(str, DLQIntegrationStrategy))}") from None
