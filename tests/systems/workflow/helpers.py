"""Callbacks that do as they are told, and write down what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redrive.stores.memory import MemoryStore
from redrive.systems.workflow import DeadLetterQueue, FailedTask, RetryPolicy

TASK = {"type": "code_sweep"}
REPOS = ["/path/to/repo"]
MINUTE = 60.0


class Worker:
    """A retry callback: what it answers is said beforehand, what it was asked stands in `seen`."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any] = lambda task: {"status": "completed"}) -> None:
        self._answer = answer
        self.seen: list[str] = []
        self.running = 0
        self.most = 0

    async def __call__(self, task: dict[str, Any], repos: list[str]) -> Any:
        self.seen.append(str(task.get("name", "")))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            answer = self._answer(task)
            return await answer if asyncio.iscoroutine(answer) else answer
        finally:
            self.running -= 1


def failing(error: BaseException | str = "Connection timeout") -> Worker:
    def answer(task: dict[str, Any]) -> Any:
        if isinstance(error, BaseException):
            raise error
        return {"success": False, "error": error}

    return Worker(answer)


async def enqueued(dlq: DeadLetterQueue, name: str, **options: Any) -> FailedTask:
    given = {"error": "Connection timeout", "retry_policy": RetryPolicy.IMMEDIATE, **options}
    return await dlq.enqueue(task_id=name, task={**TASK, "name": name}, repos=REPOS, **given)


async def status_of(dlq: DeadLetterQueue, name: str) -> str:
    task = await dlq.get_task(name)
    return "gone" if task is None else task.status.value


async def is_done(dlq: DeadLetterQueue, name: str) -> bool:
    """Resolved: a queue in memory forgets such a task, any other keeps it."""
    return await status_of(dlq, name) == ("gone" if isinstance(dlq.store, MemoryStore) else "resolved")
