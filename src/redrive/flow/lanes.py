"""Order by key: what may go on while something of its key waits. Pure: no I/O, and no time but what it is given.

A lane is what stays in order: the messages of one key, or of a whole partition. None is no lane: in any order.

    Backlog   in a transport: what it may hand out. While the first of a lane waits for its retry, nothing of that lane
    Lanes     in a consumer: what it may begin. Of each lane one at a time; if it is not simply done, what is behind it
              waits until it is settled, and is given back to the transport if it has to wait on
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import count, takewhile
from typing import Any, Generic, Protocol, TypeVar

from redrive.model import Bury, Done, Outcome, Release, Retry


class HasLane(Protocol):
    """Such as a Delivery."""

    @property
    def lane(self) -> Hashable: ...


T = TypeVar("T")
L = TypeVar("L", bound=HasLane)
_RELEASE = Release()


class Lanes(Generic[L]):
    """What a consumer has received and not begun yet, and which of it may begin.

        add ──▶ ready ──▶ next ──▶ its attempt ──▶ done   the one behind it begins at once
                           │                  └──▶ block  its settlement decides: all behind it go on, or go back
                           └─ its lane is busy: it waits behind

    retries_block   a retry waits in its lane, and holds up what is behind it; otherwise others pass it
    """

    def __init__(self, *, retries_block: bool = True) -> None:
        self._retries_block = retries_block
        self._ready: deque[L] = deque()
        self._busy: dict[Hashable, deque[L] | None] = {}  # lanes of which one has begun, and what is behind it
        self._undecided: list[tuple[L, Outcome]] = []  # those whose settlement decides how their lane goes on
        self._settling: list[tuple[L, Outcome]] = []

    @property
    def busy(self) -> int:
        """How many lanes have something that was begun and is not settled."""
        return len(self._busy)

    @property
    def is_blocked(self) -> bool:
        """Whether something that blocks its lane is being settled."""
        return bool(self._settling)

    def add(self, items: Iterable[L]) -> None:
        """Take in what has arrived, in order."""
        self._ready.extend(items)

    def next(self) -> L | None:
        """The first whose lane is free; it takes the lane."""
        ready, busy = self._ready, self._busy
        while ready:
            item = ready.popleft()
            lane = item.lane
            if lane is None:
                return item
            if lane not in busy:
                busy[lane] = None
                return item
            behind = busy[lane]
            if behind is None:
                behind = busy[lane] = deque()
            behind.append(item)
        return None

    def done(self, item: L) -> L | None:
        """Leave its lane. Returns the next item behind it, which begins now; with none the lane is free."""
        if item.lane is None:
            return None
        if behind := self._busy[item.lane]:
            return behind.popleft()
        del self._busy[item.lane]
        return None

    def block(self, item: L, outcome: Outcome) -> None:
        """Hold back what is behind it until it is settled."""
        if item.lane is not None:
            self._undecided.append((item, outcome))

    def is_next(self, item: L, arrived: Sequence[L]) -> bool:
        """Whether nothing of its lane comes before it: begun, waiting here, or earlier among those just arrived."""
        if item.lane is None:
            return True
        earlier = takewhile(lambda other: other is not item, arrived)
        return item.lane not in self._busy and all(other.lane != item.lane for other in (*self._ready, *earlier))

    def held_up(self) -> list[L]:
        """Begin to settle what blocks now; returns what has to go back to the transport in the same step."""
        self._settling, self._undecided = self._undecided, []
        held_up: list[L] = []
        for item, outcome in self._settling:
            behind = self._busy[item.lane]
            if behind and not self._goes_on(outcome):
                held_up += behind
                behind.clear()
        return held_up

    def settled(self, kept_back: Iterable[L] = ()) -> list[L]:
        """What blocked is settled. Returns what has to go back to the transport, of lanes that wait; the others go on.
        What goes back blocks its lane until that is settled, too: the transport may hand out what is behind it before.

        kept_back   what the settlement gave back instead of doing what was decided
        """
        waiting = {item.lane for item in kept_back if item.lane is not None}
        given_back: list[L] = []
        for item, outcome in self._settling:
            behind = self._busy.pop(item.lane) or ()
            if item.lane not in waiting and self._goes_on(outcome):
                self._ready.extendleft(reversed(behind))
            else:
                waiting.add(item.lane)
                given_back += behind
        self._settling = []
        given_back += self._take_ready(waiting)
        self._wait_for_return(given_back)
        return given_back

    def give_back(self) -> list[L]:
        """Take out everything that was not begun, to go back to the transport while others go on. It blocks its lane
        until that is settled, as above."""
        given_back = self.drain()
        self._wait_for_return(item for item in given_back if item.lane is not None)
        return given_back

    def _wait_for_return(self, given_back: Iterable[L]) -> None:
        for item in given_back:
            if item.lane not in self._busy:
                self._busy[item.lane] = None
                self._undecided.append((item, _RELEASE))

    def drain(self) -> list[L]:
        """Everything that was not begun."""
        left = [*self._ready]
        self._ready.clear()
        for behind in filter(None, self._busy.values()):
            left += behind
            behind.clear()
        return left

    def _goes_on(self, outcome: Outcome) -> bool:
        return isinstance(outcome, Done | Bury) or (isinstance(outcome, Retry) and not self._retries_block)

    def _take_ready(self, lanes: set[Hashable]) -> list[L]:
        """Take out what has arrived for these lanes since."""
        if lanes.isdisjoint([item.lane for item in self._ready]):
            return []
        taken = [item for item in self._ready if item.lane in lanes]
        self._ready = deque(item for item in self._ready if item.lane not in lanes)
        return taken


class _Wait(Generic[T]):
    """A lane whose first item waits for its time, or was handed out again; and those behind it."""

    __slots__ = ("due", "items", "out")

    def __init__(self, item: T, due: float) -> None:
        self.due = due
        self.items = [item]
        self.out: T | None = None  # the first one, while somebody has it


class _Alone:
    """A lane for one item that nothing waits behind."""

    __slots__ = ()


class Backlog(Generic[T]):
    """What a transport may hand out: what is ready in the order it came, and lanes that wait for their first item.

    lane    of an item: what it stays in order with; None: with nothing
    order   by what the items of one lane are sorted
    """

    def __init__(self, *, lane: Callable[[T], Hashable], order: Callable[[T], Any]) -> None:
        self.ready: deque[T] = deque()
        self._lane = lane
        self._order = order
        self._waits: dict[Hashable, _Wait[T]] = {}
        self._ends: list[tuple[float, int, Hashable]] = []  # when waits end
        self._ripe: deque[Hashable] = deque()  # lanes whose wait is over
        self._ticks = count()

    def take(self, limit: int, now: float) -> list[T]:
        """Hand out up to so many."""
        self.ripen(now)
        taken: list[T] = []
        while self._ripe and len(taken) < limit:
            taken += self._first_of(self._ripe.popleft(), now)
        if self._waits:
            self._take_free(taken, limit)
        else:
            ready = self.ready
            while ready and len(taken) < limit:
                taken.append(ready.popleft())
        return taken

    def delay(self, item: T, due: float) -> None:
        """Take in an item that is not ready before that time; the rest of its lane does not wait for it."""
        self._hold(item, _Alone(), due)

    def put_back(self, item: T, due: float) -> None:
        """Take back an item that is not done: it waits until then, and with it what is behind it in its lane."""
        lane = self._lane(item)
        self._hold(item, _Alone() if lane is None else lane, due)

    def done(self, items: Iterable[T]) -> None:
        """Forget items that are done; what waited for one of them in its lane is next."""
        if not self._waits:
            return
        for item in items:
            lane = self._lane(item)
            wait = self._waits.get(lane)
            if wait is not None and wait.out is item:
                del self._waits[lane]
                self.ready.extendleft(reversed([other for other in wait.items if other is not item]))

    def is_blocked(self, item: T) -> bool:
        """Whether it was handed out, and another of its lane was put back since."""
        wait = self._waits.get(self._lane(item))
        return wait is not None and wait.out is not item

    def drop(self, is_gone: Callable[[T], bool]) -> None:
        """Forget items that are no longer ours to hand out."""
        self.ready = deque(item for item in self.ready if not is_gone(item))
        for lane, wait in list(self._waits.items()):
            wait.items = [item for item in wait.items if not is_gone(item)]
            if not wait.items:
                del self._waits[lane]
            elif wait.out is not None and is_gone(wait.out):
                wait.out = None
                heapq.heappush(self._ends, (wait.due, next(self._ticks), lane))

    def ripen(self, now: float) -> None:
        """Let go on what has waited long enough."""
        while self._ends and self._ends[0][0] <= now:
            self._ripe.append(heapq.heappop(self._ends)[2])

    def next_time(self) -> float | None:
        """When the next wait ends."""
        return self._ends[0][0] if self._ends else None

    def waiting(self, now: float) -> Iterator[T]:
        """What is not ready before its time, or that of the first of its lane."""
        return (item for wait in self._waits.values() if wait.due > now for item in wait.items)

    def _first_of(self, lane: Hashable, now: float) -> list[T]:
        """The first of a lane whose wait is over, if it still waits."""
        wait = self._waits.get(lane)
        if wait is None or wait.out is not None or wait.due > now:
            return []
        if isinstance(lane, _Alone):
            del self._waits[lane]
        wait.out = wait.items[0]
        return [wait.out]

    def _take_free(self, taken: list[T], limit: int) -> None:
        """Hand out what is ready; an item whose lane waits joins that lane."""
        ready, waits, lane = self.ready, self._waits, self._lane
        while ready and len(taken) < limit:
            item = ready.popleft()
            wait = waits.get(lane(item))
            if wait is None:
                taken.append(item)
            else:
                insort(wait.items, item, key=self._order)

    def _hold(self, item: T, lane: Hashable, due: float) -> None:
        wait = self._waits.get(lane)
        if wait is None:
            wait = self._waits[lane] = _Wait(item, due)
        else:
            wait.due = max(wait.due, due)
            if wait.out is item:
                wait.out = None
            else:
                insort(wait.items, item, key=self._order)
        if wait.out is None:
            heapq.heappush(self._ends, (wait.due, next(self._ticks), lane))
