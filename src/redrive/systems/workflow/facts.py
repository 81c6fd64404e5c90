"""What happens to tasks: events of the queue, and the line that each of them is for a log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from redrive.telemetry.events import BackendDown, BackendUp, BreakerMoved, Event

Line: TypeAlias = tuple[int, str]
"""Level and text."""


class TaskEnqueued(Event, frozen=True):
    """A failed task is in the queue, or waits in the spool for its store."""

    task_id: str
    retry_policy: str
    max_retries: int
    error_category: str
    error: str
    spooled: bool


class TaskRetried(Event, frozen=True):
    """A retry ended, and what came of it is written."""

    task_id: str
    success: bool
    attempt: int
    by_hand: bool
    error: str | None


class TaskExhausted(Event, frozen=True):
    """The last retry of a task failed: it waits for a person."""

    task_id: str
    error: str


def line_of(event: Event) -> Line | None:
    """The line of an event; None: it deserves none."""
    say = _SAYS.get(type(event))
    return None if say is None else say(event)


def attributes_of(event: Event) -> dict[str, Any]:
    """What stands beside the text."""
    if isinstance(event, BackendDown):
        return {"backend": event.backend, "error": event.why, "next_try_seconds": event.pause.total_seconds()}
    return {name: getattr(event, name) for name in event.__struct_fields__}


def _enqueued(event: TaskEnqueued) -> Line:
    text = "Task enqueued in dead letter queue"
    return (logging.WARNING, f"{text}, and waits for its store") if event.spooled else (logging.INFO, text)


def _retried(event: TaskRetried) -> Line:
    return (logging.INFO, "Task retry succeeded") if event.success else (logging.WARNING, "Task retry failed")


_SAYS: Mapping[type[Event], Callable[[Any], Line]] = {
    TaskEnqueued: _enqueued,
    TaskRetried: _retried,
    TaskExhausted: lambda event: (logging.ERROR, "Task retries exhausted"),
    BackendDown: lambda event: (logging.ERROR, f"{event.backend} is away: what is enqueued meanwhile is spooled"),
    BackendUp: lambda event: (logging.INFO, f"{event.backend} is back"),
    BreakerMoved: lambda event: (logging.WARNING, f"The circuit breaker of {event.target} is {event.state}"),
}
