"""What Taskiq drops before a middleware sees it: it acknowledges bytes that it cannot read, and tasks that it does not
know, and writes a line to the log. A formatter stands before both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias

from taskiq.abc.formatter import TaskiqFormatter
from taskiq.message import BrokerMessage, TaskiqMessage

from redrive.integrations.taskiq.wire import labels_in, taken_apart
from redrive.model import Failure

_UNKNOWN = "no task {!r} is registered in this worker: does `taskiq worker` import the module that has it?"
Dropped: TypeAlias = Callable[[bytes, TaskiqMessage, BaseException], None]


class UnknownTask(LookupError):
    """No task of that name is registered in this worker."""


class Run:
    """One task that is being run, from its bytes to its result."""

    __slots__ = ("body", "failures", "is_sent_again", "task_id")

    def __init__(self, task_id: str, body: bytes) -> None:
        self.task_id = task_id
        self.body = body
        self.failures: list[Failure] = []
        self.is_sent_again = False  # a retry has kicked it


RUNNING: ContextVar[Run | None] = ContextVar("redrive_taskiq_running", default=None)
"""Each task runs in an asyncio task of its own, from the reading of its bytes on."""


def _unread(labels: Mapping[str, Any]) -> TaskiqMessage:
    """What is known of a task that cannot be read."""
    return TaskiqMessage(task_id="", task_name="", labels=dict(labels), args=[], kwargs={})


class Formatter(TaskiqFormatter):
    """The user's formatter, and what it cannot read reported."""

    def __init__(self, formatter: TaskiqFormatter, find: Callable[[str], Any], dropped: Dropped) -> None:
        self._formatter = formatter
        self._find = find
        self._dropped = dropped

    def dumps(self, message: TaskiqMessage) -> BrokerMessage:
        return self._formatter.dumps(message)

    def reread(self, body: bytes) -> TaskiqMessage:
        """Read what was read already, and report nothing."""
        return self._formatter.loads(message=body)

    def loads(self, message: bytes) -> TaskiqMessage:
        body, labels = taken_apart(message)
        try:
            read = self._formatter.loads(message=body)
        except Exception as error:
            self._dropped(body, _unread(labels or labels_in(body)), error)
            raise
        if labels:
            read.labels.update(labels)
        if self._find(read.task_name) is None:
            self._dropped(body, read, UnknownTask(_UNKNOWN.format(read.task_name)))
        RUNNING.set(Run(read.task_id, body))
        return read
