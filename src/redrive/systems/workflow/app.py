"""WorkflowApp: runs async workflows over repositories, and keeps those that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from msgspec import Struct

from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigError, UsageError, nearest
from redrive.flow.classify import Classifier
from redrive.model import Category
from redrive.stores.base import Store
from redrive.systems.workflow.access import AccessManager
from redrive.systems.workflow.calls import ErrorText, as_error
from redrive.systems.workflow.integration import DLQIntegration, create_dlq_integration
from redrive.systems.workflow.policies import ErrorCategory
from redrive.systems.workflow.queue import DeadLetterQueue
from redrive.systems.workflow.settings import WorkflowSettings
from redrive.telemetry.events import Events

Adapter: TypeAlias = Callable[[dict[str, Any], str], Awaitable[Any]]
"""Does the task in one repository; it fails by raising."""


class OpenSearchIntegration(Struct, frozen=True):
    """The client that the queue is kept with."""

    client: Any


class ErrorRecoveryManager:
    """Says what kind of trouble an error is."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    async def classify_error(self, error: BaseException | str) -> ErrorCategory:
        return ErrorCategory(self.classifier(as_error(error)).category)


class WorkflowApp:
    """Adapters are registered on it, workflows are run by it; what fails is in `dlq`.

    config      a WorkflowSettings; by default from settings/mahavishnu.yaml and the environment
    parallel    in how many repositories it works at once
    """

    def __init__(
        self,
        config: WorkflowSettings | None = None,
        *,
        adapters: Mapping[str, Adapter] | None = None,
        opensearch_client: Any = None,
        store: Store | str | Path | None = None,
        spool: str | Path | None = None,
        parallel: int = 10,
        rbac_manager: AccessManager | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(parallel, int) or parallel < 1:
            raise ConfigError(f"parallel={parallel!r}: it works in at least one repository at a time")
        self.config = config or WorkflowSettings.load()
        self.logger = logging.getLogger("redrive.workflow")
        self.observability = Events()
        self.opensearch_integration = None if opensearch_client is None else OpenSearchIntegration(opensearch_client)
        self._clock: Clock = clock or SystemClock()
        self._parallel = parallel
        self._adapters: dict[str, Adapter] = {}
        for name, adapter in (adapters or {}).items():
            self.register_adapter(name, adapter)
        self.error_recovery_manager = ErrorRecoveryManager(Classifier(fallback=Category.PERMANENT))
        self.dlq: DeadLetterQueue = None  # type: ignore[assignment]  # None where the settings say so, as documented
        self.dlq_integration: DLQIntegration = None  # type: ignore[assignment]
        if self.config.dlq_enabled:
            self.dlq = DeadLetterQueue(
                max_size=self.config.dlq_max_size,
                opensearch_client=opensearch_client,
                observability_manager=self.observability,
                store=store,
                spool=spool,
                default_retry_policy=self.config.dlq_default_retry_policy,
                default_max_retries=self.config.dlq_default_max_retries,
                retry_callback=self._retry,
                rbac_manager=rbac_manager,
                classifier=self.error_recovery_manager.classifier,
                clock=clock,
            )
            self.dlq_integration = create_dlq_integration(self)

    def register_adapter(self, name: str, adapter: Adapter) -> None:
        """`adapter_name=name` from now on means that function, which is called once for each repository."""
        if not callable(adapter):
            raise ConfigError(f"adapter {name!r}: {adapter!r} cannot be called")
        self._adapters[name] = adapter

    # -- running -----------------------------------------------------------------------------------------------------

    async def execute_workflow_parallel(
        self, task: dict[str, Any], adapter_name: str, repos: Sequence[str]
    ) -> dict[str, Any]:
        """Run the adapter in each repository, some at once. `status` is completed, partial or failed."""
        adapter = self._adapter(adapter_name)
        bound = asyncio.Semaphore(self._parallel)

        async def run_in(repo: str) -> Any:
            async with bound:
                return await adapter(dict(task), repo)

        began = self._clock.elapsed()
        answers = await asyncio.gather(*map(run_in, repos), return_exceptions=True)
        return _result(f"wf_{self._clock.new_id()}", adapter_name, repos, answers, self._clock.elapsed() - began)

    async def execute_workflow(self, task: dict[str, Any], adapter_name: str, repos: Sequence[str]) -> dict[str, Any]:
        """The same: the document's retry callback calls it so."""
        return await self.execute_workflow_parallel(task, adapter_name, repos)

    def _adapter(self, name: str) -> Adapter:
        if name not in self._adapters:
            known = nearest(name, self._adapters) or ": register one with app.register_adapter(name, function)"
            raise UsageError(f"unknown adapter {name!r}{known}")
        return self._adapters[name]

    async def _retry(self, task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        """What the queue does with a task that is due."""
        return await self.execute_workflow_parallel(task, task.get("adapter", "llamaindex"), repos)

    # -- the processor -----------------------------------------------------------------------------------------------

    async def start_dlq_processor(self) -> None:
        """Retry by itself what is due, unless the settings say otherwise."""
        if not self.config.dlq_enabled or self.dlq is None:
            return
        if not self.config.dlq_retry_processor_enabled:
            self.logger.info("DLQ retry processor disabled in configuration")
            return
        interval = self.config.dlq_retry_interval_seconds
        await self.dlq.start_retry_processor(callback=self._retry, check_interval_seconds=interval)
        self.logger.info("DLQ retry processor started (interval=%ds)", interval)

    async def stop_dlq_processor(self) -> None:
        if self.dlq is not None:
            await self.dlq.stop_retry_processor()
            self.logger.info("DLQ retry processor stopped")

    async def aclose(self) -> None:
        """Stop retrying, and let go of the queue. The OpenSearch client is yours."""
        if self.dlq is not None:
            await self.dlq_integration.aclose()
            await self.dlq.aclose()

    async def __aenter__(self) -> WorkflowApp:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _result(
    id: str, adapter: str, repos: Sequence[str], answers: Sequence[Any], seconds: float
) -> dict[str, Any]:  # fmt: skip
    failed = {repo: answer for repo, answer in zip(repos, answers, strict=True) if isinstance(answer, BaseException)}
    for error in failed.values():
        if not isinstance(error, Exception | asyncio.CancelledError):  # our own end, not the adapter's failure
            raise error
    result: dict[str, Any] = {
        "workflow_id": id,
        "adapter": adapter,
        "status": "completed" if not failed else "failed" if len(failed) == len(answers) else "partial",
        "results": {repo: answer for repo, answer in zip(repos, answers, strict=True) if repo not in failed},
        "seconds": seconds,
    }
    if failed:
        result["error"] = ErrorText.of(next(iter(failed.values())))
        result["errors"] = {repo: ErrorText.of(error) for repo, error in failed.items()}
        result["failed_repos"] = list(failed)
    return result
