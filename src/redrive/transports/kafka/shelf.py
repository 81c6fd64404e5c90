"""What a reader holds of its partitions: which messages are ready, leased, waiting or done, and how far the committed
offset may go. No Kafka in it, and no time but what it is given: it is tested without a broker.

    offset   1001   1002   1003   1004   1005
             done   held   done   ready  ready
                    ▲ base: everything below it is finished, so this is what may be committed
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import count
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import moment
from redrive.model import Failure, Holds, Message
from redrive.transports.base import Delivery, Depth

Place = tuple[str, int]  # topic, partition
_GONE = Message(id="", source="", body=b"", enqueued_at=moment(0))  # instead of one that is done with


class Record(Struct, gc=False, eq=False):
    """A message on the shelf, until the committed offset has passed it."""

    partition: Partition
    offset: int
    message: Message
    suspect: bool = False  # whoever had its partition before did not end cleanly, and may have attempted it
    due: float = 0.0  # not before
    failures: tuple[Failure, ...] = ()
    tried: int = 0  # attempts used up
    known: bool = False  # its counter was asked
    counted: bool = False  # its counter is not zero
    aside: bool = False  # a copy of it waits on a retry topic
    waited: bool = False  # others may wait for it
    lapsed: bool = False  # a lease on it ended unsettled
    turn: int = 0  # of the lease that holds it; 0: nobody has it
    until: float = 0.0
    done: bool = False


class Partition:
    """One partition that is ours, its unfinished messages in order."""

    __slots__ = ("alive", "asked", "bytes", "name", "next", "open", "paused", "place", "suspect_before")

    def __init__(self, place: Place, start: int, suspect_before: int = 0) -> None:
        self.place = place
        self.name = f"{place[0]}[{place[1]}]@"
        self.alive = True
        self.open: deque[Record] = deque()  # from the first unfinished one on
        self.next = start  # the offset after the last one that came
        self.asked = start  # the offset that was last given to be committed
        self.bytes = 0
        self.suspect_before = suspect_before  # who had it before may have begun what comes before this offset
        self.paused = False

    @property
    def base(self) -> int:
        """Everything before it is finished."""
        return self.open[0].offset if self.open else self.next

    @property
    def is_clean(self) -> bool:
        """Whoever comes next finds nothing that somebody has begun."""
        begun = any(record.done or record.turn or record.tried for record in self.open)
        return not begun and self.base >= self.suspect_before

    def advance(self) -> None:
        open = self.open
        while open and open[0].done:
            open.popleft()


class Alone(NamedTuple):
    """The lane of a message without a key, or on a retry topic: nothing waits behind it."""

    place: Place
    offset: int


class Wait:
    """A lane whose first message waits for its time, and those behind it."""

    __slots__ = ("due", "out", "records")

    def __init__(self, due: float) -> None:
        self.due = due
        self.records: list[Record] = []
        self.out: Record | None = None  # the first one, when somebody has it


class Shelf:
    """Everything that one reader holds. Whoever uses it from several threads locks it."""

    def __init__(self, *, lease: float, holds: Holds = Holds.KEY) -> None:
        self.partitions: dict[Place, Partition] = {}
        self.ready: deque[Record] = deque()
        self._lease = lease
        self._holds = holds
        self._waits: dict[Hashable, Wait] = {}
        self._ends: list[tuple[float, int, Hashable]] = []  # when waits end
        self._ripe: deque[Hashable] = deque()  # lanes whose wait is over
        self._turns = count(1)
        self._lapse: float | None = None  # no lease ends before

    # -- partitions ----------------------------------------------------------------------------------------------

    def assign(self, partition: Partition) -> None:
        self.partitions[partition.place] = partition

    def revoke(self, places: Iterable[Place]) -> list[Partition]:
        """They are somebody else's now; what is held of them is lost."""
        gone = [self.partitions.pop(place) for place in places if place in self.partitions]
        for partition in gone:
            partition.alive = False
        self.ready = deque(record for record in self.ready if record.partition.alive)
        for lane, wait in list(self._waits.items()):
            wait.records = [record for record in wait.records if record.partition.alive]
            if wait.out is not None and not wait.out.partition.alive:
                wait.out = None
            if not wait.records:
                del self._waits[lane]
            elif wait.out is None:
                heapq.heappush(self._ends, (wait.due, next(self._turns), lane))
        return gone

    def stop(self, places: Iterable[Place]) -> None:
        """Hand out nothing more of these."""
        leaving = set(places)
        self.ready = deque(record for record in self.ready if record.partition.place not in leaving)
        for wait in self._waits.values():
            if wait.out is None and wait.records and wait.records[0].partition.place in leaving:
                wait.due = float("inf")

    def is_held(self, places: Iterable[Place]) -> bool:
        """Whether somebody has something of these."""
        partitions = [self.partitions[place] for place in places if place in self.partitions]
        return any(record.turn and not record.done for one in partitions for record in one.open)

    # -- messages ------------------------------------------------------------------------------------------------

    def add(self, records: Sequence[Record], now: float) -> None:
        """They have arrived, in the order of their partitions."""
        for record in records:
            partition = record.partition
            partition.open.append(record)
            partition.next = record.offset + 1
            partition.bytes += len(record.message.body)
            if record.due > now:
                self._hold_back(record, Alone(partition.place, record.offset), record.due)
            else:
                self.ready.append(record)

    def take(self, limit: int, now: float) -> list[Record]:
        """Lease up to so many."""
        self.ripen(now)
        taken: list[Record] = []
        while self._ripe and len(taken) < limit:
            lane = self._ripe.popleft()
            wait = self._waits.get(lane)
            if wait is not None and wait.out is None and wait.due <= now:
                wait.out = wait.records[0]
                taken.append(wait.out)
                if isinstance(lane, Alone):
                    del self._waits[lane]
        if self._waits:
            self._take_free(taken, limit)
        else:
            ready = self.ready
            while ready and len(taken) < limit:
                taken.append(ready.popleft())
        self._lend(taken, now)
        return taken

    def _take_free(self, taken: list[Record], limit: int) -> None:
        """What waits behind another of its lane is put there."""
        ready, waits, by_key = self.ready, self._waits, self._holds is not Holds.PARTITION
        while ready and len(taken) < limit:
            record = ready.popleft()
            wait = waits.get(record.message.key if by_key else record.partition.place)
            if wait is None:
                taken.append(record)
            else:
                record.waited = True
                insort(wait.records, record, key=_order)

    def still_first(self, records: Sequence[Record], now: float) -> list[Record]:
        """Those of them, just taken, that have not to wait; the others wait again, and those that are lost are lost."""
        first = []
        for record in records:
            wait = self._waits.get(self.lane(record))
            if wait is not None and wait.out is not record:
                self.give_back(record, now)
            elif record.partition.alive:
                first.append(record)
        return first

    def extend(self, record: Record, now: float) -> None:
        record.until = now + self._lease

    def give_back(self, record: Record, due: float) -> None:
        """It waits until then, and with it what is behind it in its lane."""
        record.turn = 0
        lane = self.lane(record)
        self._hold_back(record, Alone(record.partition.place, record.offset) if lane is None else lane, due)

    def finish(self, records: Sequence[Record]) -> None:
        """They are done with, and the committed offset may go on to the first that is not."""
        for record in records:
            record.done, record.turn = True, 0
            record.partition.bytes -= len(record.message.body)
            if record.waited:
                self._let_go_on(record)
            record.message, record.failures = _GONE, ()
        for partition in self.partitions.values():
            partition.advance()

    def lane(self, record: Record) -> Hashable:
        """What it stays in order with; None: with nothing."""
        return record.partition.place if self._holds is Holds.PARTITION else record.message.key

    def deliveries(self, records: Sequence[Record]) -> list[Delivery]:
        """As they are handed out."""
        by_key = self._holds is not Holds.PARTITION
        return [
            Delivery(
                record.message if not record.tried else _again(record),
                (record, record.turn),
                record.failures,
                record.suspect or record.lapsed,
                record.message.key if by_key else record.partition.place,
            )
            for record in records
        ]

    # -- time ----------------------------------------------------------------------------------------------------

    def ripen(self, now: float) -> None:
        """What waited long enough may go, and what somebody held too long comes back."""
        while self._ends and self._ends[0][0] <= now:
            self._ripe.append(heapq.heappop(self._ends)[2])
        if self._lapse is not None and self._lapse <= now:
            self._end_leases(now)

    def next_time(self) -> float | None:
        """When something may ripen."""
        times = [self._ends[0][0]] if self._ends else []
        times += [] if self._lapse is None else [self._lapse]
        return min(times, default=None)

    def depth(self, place: Place, end: int, now: float) -> Depth:
        """Of one of our partitions, whose last offset is before `end`."""
        self.ripen(now)
        partition = self.partitions[place]
        leased = sum(record.turn > 0 for record in partition.open)
        done = sum(record.done for record in partition.open)
        waiting = [record for wait in self._waits.values() if wait.due > now for record in wait.records]
        delayed = sum(record.partition is partition and not record.turn for record in waiting)
        return Depth(max(end - partition.base - done - leased - delayed, 0), delayed, leased)

    # -- inside --------------------------------------------------------------------------------------------------

    def _lend(self, records: Sequence[Record], now: float) -> None:
        turn, until = next(self._turns), now + self._lease
        for record in records:
            record.turn, record.until = turn, until
        if records and self._lapse is None:
            self._lapse = until

    def _hold_back(self, record: Record, lane: Hashable, due: float) -> None:
        record.waited = True
        wait = self._waits.get(lane)
        if wait is None:
            wait = self._waits[lane] = Wait(due)
            wait.records.append(record)
        elif wait.out is record:
            wait.out, wait.due = None, max(wait.due, due)
        else:
            wait.due = max(wait.due, due)
            insort(wait.records, record, key=_order)
        if wait.out is None:
            heapq.heappush(self._ends, (wait.due, next(self._turns), lane))

    def _let_go_on(self, record: Record) -> None:
        """If others waited for it, they are next."""
        lane = self.lane(record)
        wait = self._waits.get(lane)
        if wait is not None and wait.out is record:
            del self._waits[lane]
            self.ready.extendleft(reversed([one for one in wait.records if one is not record]))

    def _end_leases(self, now: float) -> None:
        self._lapse = None
        for partition in self.partitions.values():
            for record in [one for one in partition.open if one.turn]:
                if record.until <= now:
                    record.lapsed = record.known = True
                    record.tried += 1
                    self.give_back(record, now)
                elif self._lapse is None or record.until < self._lapse:
                    self._lapse = record.until
        while self._ends and self._ends[0][0] <= now:
            self._ripe.append(heapq.heappop(self._ends)[2])


def _again(record: Record) -> Message:
    return replace(record.message, attempt=record.message.attempt + record.tried)


def _order(record: Record) -> tuple[Place, int]:
    return record.partition.place, record.offset
