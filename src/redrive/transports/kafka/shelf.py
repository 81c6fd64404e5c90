"""What a reader holds of its partitions: offsets, leases and due times, and how far the committed offset may go.
What may be handed out while something of its key waits is decided in `flow/lanes.py`. No Kafka in it, and no time but
what it is given: it is tested without a broker.

    offset   1001   1002   1003   1004   1005
             done   held   done   ready  ready
                    ▲ base: everything below it is finished, so this is what may be committed
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, count, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import moment
from redrive.flow.lanes import Backlog
from redrive.model import Failure, Holds, Message
from redrive.transports.base import Delivery, Depth
from redrive.transports.kafka.finished import NOTHING as NOTHING_FINISHED
from redrive.transports.kafka.finished import Finished, Run, joined

Place = tuple[str, int]  # topic, partition
Standing = tuple[int, int]  # the first offset that is not finished, and how many are finished here
GONE = Message(id="", source="", body=b"", enqueued_at=moment(0))
"""Instead of one that is done with."""


class Record(Struct, gc=False, eq=False):
    """A message on the shelf, until the committed offset has passed it."""

    partition: Partition
    offset: int
    made: Message | None  # None: it is made of `raw` when it is asked for
    suspect: bool = False  # whoever had its partition before did not end cleanly, and may have attempted it
    raw: Any = None  # as the driver gave it: it has no headers, and was never tried
    due: float = 0.0  # not before
    failures: tuple[Failure, ...] = ()
    tried: int = 0  # attempts used up
    known: bool = False  # its counter was asked
    counted: bool = False  # its counter is not zero
    aside: bool = False  # a copy of it waits on a retry topic
    lapsed: bool = False  # a lease on it ended unsettled
    turn: int = 0  # of the lease that holds it; 0: nobody has it
    until: float = 0.0
    done: bool = False
    at: datetime | None = None  # its own timestamp, where its message has another time
    unreadable: str = ""  # why it cannot be read

    @property
    def message(self) -> Message:
        if self.made is None:
            partition = self.partition
            self.made = partition.read(self.raw, f"{partition.name}{self.offset}")
        return self.made

    @message.setter
    def message(self, message: Message) -> None:
        self.made, self.raw = message, None

    @property
    def key(self) -> bytes | None:
        if self.made is not None:
            return self.made.key
        key: bytes | None = self.raw.key()
        return key

    def is_tried(self) -> None:
        """From now on it is a message that was tried."""
        self.message = self.message
        self.tried += 1
        self.known = True


def written_at(delivery: Delivery) -> datetime:
    """When a record was written to its topic. What Redrive has sent says in its envelope when it was enqueued first."""
    match delivery.token:
        case (Record(at=datetime() as at), _):
            return at
    return delivery.message.enqueued_at


class Partition:
    """One partition that is ours, its unfinished messages in order."""

    __slots__ = (
        "alive",
        "bytes",
        "committed",
        "done_before",
        "done_count",
        "done_until",
        "leaving",
        "name",
        "next",
        "open",
        "paused",
        "place",
        "read",
        "suspect_before",
    )

    def __init__(
        self,
        place: Place,
        start: int,
        suspect_before: int = 0,
        *,
        done_before: Finished = NOTHING_FINISHED,
        read: Callable[[Any, str], Message] | None = None,
    ) -> None:
        self.place = place
        self.name = f"{place[0]}[{place[1]}]@"
        self.alive = True
        self.leaving = False  # about to be somebody else's: nothing of it is handed out any more
        self.open: deque[Record] = deque()  # from the first unfinished one on
        self.next = start  # the offset after the last one that came
        self.bytes = 0
        self.done_before = done_before  # what others have finished, though it lies above the committed offset
        self.done_count = 0  # how many were finished here
        self.done_until = start  # behind the last one of them
        self.committed: Standing = (start, 0)
        self.suspect_before = suspect_before  # who had it before may have begun what comes before this offset
        self.paused = False
        self.read = read or _nobody_reads  # makes a message of what the driver gave, and where that was

    @property
    def base(self) -> int:
        """The first offset that is not finished."""
        return self.open[0].offset if self.open else self.next

    @property
    def standing(self) -> Standing:
        """How far it is finished."""
        return self.base, self.done_count

    @property
    def is_changed(self) -> bool:
        """Whether more is finished than is committed."""
        return self.committed != self.standing

    @property
    def uncommitted(self) -> int:
        """How many are finished, and would be repeated after a crash."""
        return self.done_count - self.committed[1]

    def finished_runs(self) -> Iterator[Run]:
        """What is finished above the base: here, and what others have finished and has not come yet."""
        here = takewhile(lambda record: record.offset < self.done_until, self.open)
        return joined(
            chain(
                ((record.offset, record.offset + 1) for record in here if record.done),
                self.done_before.runs_from(self.next),
            )
        )

    @property
    def is_clean(self) -> bool:
        """Whether nothing is begun and unfinished, so that the next owner need suspect nothing."""
        begun = any(record.done or record.turn or record.tried for record in self.open)
        return not begun and self.base >= self.suspect_before

    def advance(self) -> None:
        open = self.open
        while open and open[0].done:
            open.popleft()


class Shelf:
    """Everything that one reader holds. Whoever uses it from several threads locks it."""

    def __init__(self, *, lease: float, holds: Holds = Holds.KEY) -> None:
        self.partitions: dict[Place, Partition] = {}
        self._lease = lease
        self._by_key = holds is not Holds.PARTITION
        self._backlog: Backlog[Record] = Backlog(lane=_key if self._by_key else _place, order=_order)
        self._turns = count(1)
        self._lapse: float | None = None  # no lease ends before
        self.leased = 0  # how many are handed out

    @property
    def ready(self) -> int:
        """How many may be handed out, but for those that wait behind another."""
        return len(self._backlog.ready)

    @property
    def uncommitted(self) -> int:
        """How many are finished, and would be repeated after a crash."""
        return sum([partition.uncommitted for partition in self.partitions.values()])

    # -- partitions ----------------------------------------------------------------------------------------------

    def assign(self, partition: Partition) -> None:
        self.partitions[partition.place] = partition

    def revoke(self, places: Iterable[Place]) -> list[Partition]:
        """Drop partitions that are somebody else's now; what is held of them is lost."""
        gone = [self.partitions.pop(place) for place in places if place in self.partitions]
        for partition in gone:
            partition.alive = False
            self.leased -= sum(record.turn > 0 for record in partition.open)
        self._backlog.drop(lambda record: not record.partition.alive)
        return gone

    def stop(self, places: Iterable[Place]) -> None:
        """Hand out nothing more of these."""
        for place in places:
            if place in self.partitions:
                self.partitions[place].leaving = True
        self._backlog.drop(lambda record: record.partition.leaving)

    def is_held(self, places: Iterable[Place]) -> bool:
        """Whether somebody has something of these."""
        partitions = [self.partitions[place] for place in places if place in self.partitions]
        return any(record.turn and not record.done for partition in partitions for record in partition.open)

    # -- messages ------------------------------------------------------------------------------------------------

    def add(self, records: Sequence[Record], now: float) -> None:
        """Take in what has arrived, in the order of their partitions."""
        ready = self._backlog.ready
        for record in records:
            partition = record.partition
            partition.open.append(record)
            partition.next = record.offset + 1
            if record.done:
                partition.done_until = partition.next
                partition.advance()
                continue
            partition.bytes += len(record.raw) if record.made is None else len(record.made.body)
            if record.due > now:
                self._backlog.delay(record, record.due)
            else:
                ready.append(record)

    def take(self, limit: int, now: float) -> list[Record]:
        """Lease up to so many."""
        self.ripen(now)
        taken = self._backlog.take(limit, now)
        self.leased += len(taken)
        turn, until = next(self._turns), now + self._lease
        for record in taken:
            record.turn, record.until = turn, until
        if taken and self._lapse is None:
            self._lapse = until
        return taken

    def still_first(self, records: Sequence[Record], now: float) -> list[Record]:
        """Those of the records just taken that need not wait; the others wait again."""
        first = []
        for record in records:
            if self._backlog.is_blocked(record):
                self.give_back(record, now)
            elif record.partition.alive:
                first.append(record)
        return first

    def extend(self, record: Record, now: float) -> None:
        record.until = now + self._lease

    def give_back(self, record: Record, due: float) -> None:
        """Put a record back: it waits until then, and with it what is behind it in its lane."""
        self._end_turn(record)
        if not record.partition.leaving:
            self._backlog.put_back(record, due)

    def finish(self, records: Sequence[Record]) -> None:
        """They are done with, and the committed offset may go on to the first that is not."""
        self._backlog.done(records)
        for record in records:
            partition, made, offset = record.partition, record.made, record.offset
            if record.turn and partition.alive:
                self.leased -= 1
            record.turn, record.done = 0, True
            partition.bytes -= len(record.raw) if made is None else len(made.body)
            partition.done_count += 1
            if offset >= partition.done_until:
                partition.done_until = offset + 1
            if partition.open and partition.open[0] is record:  # as almost always
                partition.open.popleft()
            else:
                record.made, record.raw, record.failures = GONE, None, ()
        for partition in self.partitions.values():
            partition.advance()

    def deliveries(self, records: Sequence[Record], turn: int | None = None) -> list[Delivery]:
        """The records as deliveries, to be handed out; or to who has leased them in that turn."""
        by_key = self._by_key
        return [
            Delivery(
                record.message if not record.tried else _again(record),
                (record, record.turn if turn is None else turn),
                record.failures,
                record.suspect or record.lapsed,
                record.key if by_key else record.partition.place,
                unreadable=record.unreadable,
            )
            for record in records
        ]

    # -- time ----------------------------------------------------------------------------------------------------

    def ripen(self, now: float) -> None:
        """Take back what was held too long, and let go on what has waited long enough."""
        if self._lapse is not None and self._lapse <= now:
            self._end_leases(now)
        self._backlog.ripen(now)

    def next_time(self) -> float | None:
        """When the next lease or wait ends."""
        times = [time for time in (self._backlog.next_time(), self._lapse) if time is not None]
        return min(times, default=None)

    def depth(self, place: Place, end: int, now: float) -> Depth:
        """The depth of one of our partitions, whose last offset is before `end`."""
        self.ripen(now)
        partition = self.partitions[place]
        leased = sum(record.turn > 0 for record in partition.open)
        done = sum(record.done for record in partition.open)
        delayed = sum(record.partition is partition and not record.turn for record in self._backlog.waiting(now))
        return Depth(max(end - partition.base - done - leased - delayed, 0), delayed, leased)

    def _end_turn(self, record: Record) -> None:
        if record.turn and record.partition.alive:
            self.leased -= 1
        record.turn = 0

    def _end_leases(self, now: float) -> None:
        self._lapse = None
        for partition in self.partitions.values():
            for record in [record for record in partition.open if record.turn]:
                if record.until <= now:
                    record.lapsed = True
                    record.is_tried()
                    self.give_back(record, now)
                elif self._lapse is None or record.until < self._lapse:
                    self._lapse = record.until


def _again(record: Record) -> Message:
    return replace(record.message, attempt=record.message.attempt + record.tried)


def _nobody_reads(raw: Any, origin: str) -> Message:
    raise AssertionError(f"{origin} is on a shelf that nobody reads for")


def _key(record: Record) -> Hashable:
    return record.key


def _place(record: Record) -> Hashable:
    return record.partition.place


def _order(record: Record) -> tuple[Place, int]:
    return record.partition.place, record.offset
