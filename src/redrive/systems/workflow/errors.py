"""What can be wrong with a call of the workflow system."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import UsageError


class QueueFull(UsageError):
    """The queue holds as many open tasks as it may."""

    def __init__(self, task_id: str, max_size: int) -> None:
        super().__init__(
            f"task {task_id!r} was not enqueued: the queue holds {max_size:,} open tasks, as many as it may. Archive "
            f"those that are done with (archive_task), delete all (clear_all), or raise max_size (dlq_max_size)"
        )


class DuplicateTask(UsageError):
    """Another task is in the queue under that id."""

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"task_id {task_id!r} belongs to another task that is still open: give this one an id of its own, or "
            f"archive the other one first (archive_task)"
        )


class BadTask(UsageError):
    """A field of the task cannot be kept."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(
            f"{field}: {why}; a task is kept outside of this process, so give it text, numbers, lists, dicts, sets, "
            f"bytes, times and paths"
        )


class DependencyCycle(UsageError):
    """A task would wait for itself."""

    def __init__(self, way: Sequence[str]) -> None:
        super().__init__(
            f"task {way[0]!r} was not enqueued: {' waits for '.join(map(repr, way))}, so none of them would ever be "
            f"retried. Leave one of them out of `after`"
        )


class AccessDenied(UsageError):
    """That user may not do that."""

    def __init__(self, user_id: str | None, operation: str) -> None:
        who = "nobody said who asks: pass user_id=…" if user_id is None else f"{user_id!r} has no permission for it"
        super().__init__(f"{operation} on the dead-letter queue is refused: {who}")
