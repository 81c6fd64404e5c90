"""Workflows that fail and are retried: the workflow app itself, which keeps its failed tasks in SQLite anyway.

A sweep runs over repositories; where the model server does not answer it is tried again, in these repositories only.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

from msgspec.structs import replace

from redrive.config.settings import Settings
from redrive.demo.past import Past
from redrive.demo.people import People
from redrive.demo.stage import Life, Stage, together
from redrive.systems.workflow import RetryPolicy, Template, WorkflowApp, WorkflowSettings
from redrive.systems.workflow.task import SOURCE, TRANSPORT

REPOS = ("/repos/api", "/repos/shop", "/repos/docs", "/repos/billing")
EVERY, RETRIED = 12.0, 15  # seconds: between sweeps, and between looks at what is due


class ModelServer:
    """Answers sweeps, most of the time."""

    def __init__(self) -> None:
        self.fails = 0.0
        self._random = Random()

    async def sweep(self, task: dict[str, Any], repo: str) -> str:
        if task.get("token_expired"):
            raise PermissionError("403: the deploy key of the repository has expired")
        if task.get("tokens", 0) > 128_000:
            raise ValueError(f"the prompt has {task['tokens']:,} tokens; the model takes 128,000")
        if self._random.random() < self.fails:
            raise ConnectionError(f"the model server did not answer for {repo}")
        return f"{task['type']} of {repo} done"


class WorkflowLife(Life):
    name = "workflow"
    watch = "sweeps over repositories fail in some of them, and are retried there"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.server = ModelServer()
        self.app = self._made()

    def _made(self, **more: Any) -> WorkflowApp:
        settings = WorkflowSettings(
            dlq_default_retry_policy=RetryPolicy.IMMEDIATE.value,
            dlq_default_max_retries=5,
            dlq_retry_interval_seconds=RETRIED,
        )
        app = WorkflowApp(settings, adapters={"llamaindex": self.server.sweep}, store=self.stage.url, **more)
        for text in ("deploy key", "the model takes"):  # no retry mends them
            app.dlq.register_template(Template(name=text, text=text, retry_policy=RetryPolicy.NEVER))
        return app

    def settings(self, settings: Settings) -> Settings:
        """So that the console can send its letters back."""
        way = f"workflow+{self.stage.url}"
        return replace(settings, transports={**settings.transports, TRANSPORT: way})

    async def past(self, past: Past) -> None:
        past.clock.at = past.now - timedelta(days=2)
        async with self._made(clock=past.clock) as app:
            events: list[tuple[datetime, dict[str, Any]]] = [
                (at, {"type": "code_sweep"}) for at in past.times(26, 2, 24)
            ]
            self.server.fails = 1.0
            events += [(at, {"type": "license_scan", "token_expired": True}) for at in past.times(20, 3, 12)]
            events += [
                (at, {"type": "summary", "tokens": 131_072 + 7 * n}) for n, at in enumerate(past.times(0.6, 0.1, 5))
            ]
            for at, task in sorted(events, key=lambda event: event[0]):
                past.clock.at = at
                await app.execute_workflow_parallel(task, "llamaindex", [past.random.choice(REPOS)])
            self.server.fails = 0.0

    async def people(self, people: People) -> None:
        expired = await people.group(SOURCE, "deploy key")
        await people.assign(expired, "bob", "New keys are ordered. Platform makes them on Thursday.")

    async def live(self) -> None:
        unsubscribe = self.app.observability.subscribe(self.stage.events.emit)
        await self.app.start_dlq_processor()
        try:
            await together(self._sweep)
        finally:
            await self.app.stop_dlq_processor()
            unsubscribe()

    async def _sweep(self) -> None:
        while True:
            self.server.fails = 0.2
            await self.app.execute_workflow_parallel({"type": "code_sweep"}, "llamaindex", REPOS)
            self.stage.sent += 1
            await self.stage.pause(EVERY)

    async def aclose(self) -> None:
        await self.app.aclose()
