"""A time limit for each of very many short attempts.

`asyncio.timeout` sets a timer and takes it back, each time: a third of the whole path of a message. All attempts of a
handler are allowed the same time, so they run out in the order in which they began, and one timer does for all.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import TracebackType


class Deadlines:
    """The attempts of one handler that are under way, the oldest first."""

    def __init__(self, span: timedelta) -> None:
        self.span = span
        self._seconds = span.total_seconds()
        self._ends: dict[Deadline, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, deadline: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        self._ends[deadline] = end = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(end, self._look, loop)

    def end(self, deadline: Deadline) -> None:
        self._ends.pop(deadline, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End those that are over; come back when the oldest of the others will be."""
        self._timer, now = None, loop.time()
        for deadline, end in list(self._ends.items()):
            if end > now:
                self._timer = loop.call_at(end, self._look, loop)
                return
            self.end(deadline)
            deadline.expire()


class Deadline:
    """`with deadline:` what the task that made it does in it is cancelled after the span. For one use at a time.

    As `asyncio.timeout` does, it answers for its own cancellation, and for no other.
    """

    __slots__ = ("_cancelling", "_deadlines", "_loop", "_task", "expired")

    def __init__(self, deadlines: Deadlines) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._deadlines = deadlines
        self._cancelling = 0
        self.expired = False

    @property
    def span(self) -> timedelta:
        return self._deadlines.span

    def __enter__(self) -> None:
        self.expired = False
        self._cancelling = self._task.cancelling()
        self._deadlines.begin(self, self._loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.end(self)
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        self.expired = True
        self._task.cancel()
