"""A time limit for each of very many short attempts.

`asyncio.timeout` sets a timer and takes it back, each time: a third of the whole path of a message. All attempts of a
handler are allowed the same time, so they run out in the order in which they began, and one timer does for all.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from types import TracebackType

_HELD_UP = 0.1  # seconds: a timer that is so late was not kept by a loop that had time


class Deadlines:
    """The attempts of one handler that are under way, the oldest first."""

    def __init__(self, span: timedelta) -> None:
        self.span = span
        self.seconds = span.total_seconds()
        self.ends: dict[Deadline, float] = {}
        self.timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Set the timer to when the oldest attempt has to end."""
        oldest = next(iter(self.ends.values()))
        self.timer = asyncio.get_running_loop().call_later(oldest - monotonic(), self._look, oldest)

    def _look(self, due: float) -> None:
        """Cancel the attempts whose time is over. If the loop was held up, it first handles what came meanwhile."""
        if monotonic() - due > _HELD_UP:
            self.timer = asyncio.get_running_loop().call_later(_HELD_UP, self._look, float("inf"))
            return
        self.timer, now = None, monotonic()
        for deadline, end in list(self.ends.items()):
            if end > now:
                break
            del self.ends[deadline]
            deadline.expire()
        if self.ends:
            self.watch()


class Deadline:
    """`with deadline:` what the task that made it does in it is cancelled after the span. For one use at a time.

    As `asyncio.timeout` does, it answers for its own cancellation, and for no other.
    """

    __slots__ = ("_before", "_deadlines", "_task", "expired")

    def __init__(self, deadlines: Deadlines) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._deadlines = deadlines
        self._before = 0  # how often the task had been cancelled when we did it
        self.expired = False

    @property
    def span(self) -> timedelta:
        return self._deadlines.span

    def __enter__(self) -> None:
        deadlines = self._deadlines
        self.expired = False
        deadlines.ends[self] = monotonic() + deadlines.seconds
        if deadlines.timer is None:
            deadlines.watch()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.ends.pop(self, None)
        if self.expired and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        self.expired, self._before = True, self._task.cancelling()
        self._task.cancel()
