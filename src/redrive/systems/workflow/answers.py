"""What somebody is told who asks for a task to be retried."""

from __future__ import annotations

from typing import Any

from redrive.model import Letter, State
from redrive.systems.workflow.task import FailedTask

IN_FLIGHT = (State.RETRYING, State.REPLAYING)


def answer(task_id: str, *, error: str | None = None, result: Any = None) -> dict[str, Any]:
    """As the document has it: `success`, and `result` or `error`."""
    told: dict[str, Any] = {"success": error is None, "task_id": task_id, "result": result}
    return told if error is None else {**told, "error": error}


def why_not(letter: Letter) -> str:
    """Why that task cannot be retried now."""
    task = FailedTask(letter)
    if letter.state in IN_FLIGHT:
        return f"a retry of task {task.task_id!r} is under way already"
    if letter.state in (State.RESOLVED, State.ARCHIVED):
        return f"task {task.task_id!r} is {task.status}: there is nothing to retry"
    return f"task {task.task_id!r} waits for {', '.join(letter.depends_on)}: retry or archive that first"
