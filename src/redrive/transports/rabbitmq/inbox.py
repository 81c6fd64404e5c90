"""The inbox of a subscription: messages that the broker sent and nobody was handed yet. Pure: no broker, no waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from redrive.transports.rabbitmq.redelivery import ONE_BY_ONE, PREFETCHING, Pace, Redelivery


class HasState(Protocol):
    """What the inbox has to know of a message."""

    @property
    def state(self) -> Redelivery: ...


M = TypeVar("M", bound=HasState)


class Inbox(Generic[M]):
    """Messages in the order in which they came. Those that were delivered before lie apart until that is counted."""

    def __init__(self) -> None:
        self.pace: Pace = PREFETCHING
        self._ready: deque[M] = deque()
        self._uncounted: deque[M] = deque()

    def __len__(self) -> int:
        return len(self._ready) + len(self._uncounted)

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def has_uncounted(self) -> bool:
        return bool(self._uncounted)

    @property
    def must_slow_down(self) -> bool:
        """Whether the next message is SUSPECT, and others are prefetched."""
        return not self.pace.is_one_by_one and bool(self._ready) and self._ready[0].state is Redelivery.SUSPECT

    def add(self, message: M, *, redelivered: bool) -> None:
        (self._uncounted if redelivered else self._ready).append(message)

    def hand_out(self, limit: int) -> list[M]:
        """The next messages, up to a SUSPECT one; while they go one by one, the next, whatever it is."""
        if self.pace.is_one_by_one:
            return self._hand_out_one()
        ready, suspect = self._ready, Redelivery.SUSPECT
        out: list[M] = []
        while ready and len(out) < limit and ready[0].state is not suspect:
            out.append(ready.popleft())
        return out

    def _hand_out_one(self) -> list[M]:
        if not self._ready:
            return []
        message = self._ready.popleft()
        self.pace = self.pace.handed_out(message.state)
        return [message]

    def slow_down(self) -> list[M]:
        """From now on messages go one by one; returns those prefetched behind the next, which are to be given back."""
        self.pace = ONE_BY_ONE
        behind = list(self._ready)[1:]
        while len(self._ready) > 1:
            self._ready.pop()
        return behind

    def speed_up(self) -> None:
        """Prefetch again."""
        self.pace = PREFETCHING

    def take_uncounted(self) -> list[M]:
        """Those that were delivered before. The caller settles them, or puts them back."""
        found = list(self._uncounted)
        self._uncounted.clear()
        return found

    def put_back_uncounted(self, messages: Sequence[M]) -> None:
        self._uncounted.extendleft(reversed(messages))

    def put_back(self, messages: Sequence[M]) -> None:
        """Those that could not be given back to the broker: they are handed out one by one."""
        self._ready.extend(messages)

    def take_ready(self) -> list[M]:
        """Those that were prefetched and handed to nobody."""
        found = list(self._ready)
        self._ready.clear()
        return found

    def clear(self) -> None:
        self._ready.clear()
        self._uncounted.clear()
