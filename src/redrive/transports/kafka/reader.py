"""The consumer of one source: a thread that polls in batches, commits what is finished and bears rebalances.

Everything of librdkafka's consumer happens in that thread. It shares one thing with the event loop, the shelf, under
one lock that nobody holds for longer than it takes to move a batch.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from redrive.clock import Steady
from redrive.model import Holds
from redrive.transports.base import Delivery
from redrive.transports.kafka.commits import Commits
from redrive.transports.kafka.doubt import Doubt
from redrive.transports.kafka.driver import (
    AWAY,
    FENCED,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
    driver_log,
    inner,
    log,
    why,
)
from redrive.transports.kafka.finished import finished_in, is_open
from redrive.transports.kafka.handover import Handover
from redrive.transports.kafka.membership import Membership
from redrive.transports.kafka.options import Options
from redrive.transports.kafka.shelf import GONE, Partition, Place, Record, Shelf
from redrive.transports.kafka.wire import Arrived, Reading

_BATCH = 500
_AHEAD = 1_000  # messages that wait here, ready, before no more are polled
_TICK = 0.05
_SHORT_TICK = 0.005  # while something may be finished at any moment, and is to be committed
_SHORTEST = 0.001  # of a wait: a remainder that a clock rounds to nothing would never pass
_FULL_FOR = 1.0  # seconds without a poll, when there is no capacity, before partitions are paused and polled again
TAKEN = (
    "another process has joined group %(group)r as %(name)r, which is our name: this worker goes on without one, so "
    "that its partitions wait for the end of its session if it is killed. Give each worker a name of its own "
    "(`worker`, or REDRIVE_WORKER), or none"
)
HALF_DONE = (
    "this worker came back as %(name)r, and was ended before while it gave partitions away: nobody reads them. It "
    "leaves group %(group)r for a moment, so that they are given out"
)
_FINISH = 1.0  # seconds that handlers get to finish what is about to be taken from us
_PATIENCE = 10.0
_LEAVE = 15.0
_UNCOMMITTED = 5.0  # seconds that nothing is handed out because nothing can be committed


class Reader:
    """The deliveries of one source, as its topic and its retry topics give them."""

    def __init__(
        self,
        options: Options,
        source: str,
        topics: Sequence[str],
        *,
        lease: timedelta,
        holds: Holds,
        elapsed: Callable[[], float],
        steady: Steady,
        worker: str = "",
        paused: bool = False,
        most_held: int = 0,
    ) -> None:
        self.shelf = Shelf(lease=lease.total_seconds(), holds=holds)
        self.lock = threading.Lock()
        self.arrived = asyncio.Event()
        self.trouble: str | None = None  # why nothing comes
        self.moves = 0  # how often partitions were given to us
        self.most_held = most_held  # by a worker, where it has said so
        self._ahead = max(_AHEAD, 2 * most_held)
        self._options = options
        self._source = source
        self._topics = list(topics)
        self._lease = lease
        self._elapsed = elapsed
        self._steady = steady
        self._reading = Reading(source)
        self._read_later = Reading(source).plain  # in the event loop
        self._loop = asyncio.get_running_loop()
        self._settled = threading.Event()  # something was settled: there may be capacity, or nothing held any more
        self._closing = threading.Event()
        self._bug: BaseException | None = None
        self._largest = 0  # limit of a take: twice as many may be held at a time
        self._held_since: float | None = None  # nothing is handed out, until what is finished is committed
        self._halted = False
        self._is_paused = paused  # nothing of this source is to be handed out
        self._has_paused = False  # its partitions are paused for that; the thread sees to it
        self._full_since: float | None = None
        self._commits = Commits(self.shelf, self.lock, source, self._wake)
        self._membership = Membership(worker, source, lease)
        self._handover = Handover(options, self._topics)
        self._doubt = Doubt(self._topics[0])
        self._rejoins = False  # as another member than before
        self._consumer: Any = self._made()
        self._thread = threading.Thread(target=self._run, name=f"redrive-kafka-{source}", daemon=True)
        self._thread.start()

    def _made(self) -> Any:
        own = {"error_cb": self._on_error, "on_commit": self._commits.answered, "logger": driver_log}
        return Consumer({**self._membership.settings(), **self._options.consumer(), **own})

    # -- in the event loop ---------------------------------------------------------------------------------------

    def take(self, limit: int) -> list[Record]:
        """Lease up to so many."""
        if self._bug is not None:
            raise self._bug
        if self._is_paused:
            return []
        with self.lock:
            uncommitted = self.shelf.uncommitted
            allowed = self._allowed(limit, uncommitted)
            taken = self.shelf.take(allowed, self._elapsed()) if allowed else []
            has_capacity = self.shelf.ready < self._ahead // 2
        if has_capacity:
            self._settled.set()
        if uncommitted > limit // 4:
            self._commits.soon(now=True)
        return taken

    def _allowed(self, limit: int, uncommitted: int) -> int:
        """As many as are asked for, but what is handed out and what is finished and not committed are together no more
        than a worker may hold (two takes, or what it says): a crash repeats no more. Nothing, until it is worth it;
        where nothing can be committed for a while, work goes on all the same."""
        self._largest = max(self._largest, limit)
        most = max(self.most_held, 2 * self._largest)
        allowed = min(limit, max(limit, most - self.shelf.leased) - uncommitted)
        if allowed > limit // 4:
            self._held_since = None
            return allowed
        self._held_since = self._held_since or time.monotonic()
        return limit if time.monotonic() - self._held_since > _UNCOMMITTED else 0

    def still_first(self, records: Sequence[Record]) -> list[Record]:
        """Those that may still go: while they were counted, one before them in their lane may have been given back."""
        with self.lock:
            return self.shelf.still_first(records, self._elapsed())

    def deliveries(self, records: Sequence[Record]) -> list[Delivery]:
        return self.shelf.deliveries(records)

    def wait_seconds(self) -> float:
        """Seconds until something that we hold is due."""
        if self._is_paused:
            return 3600.0
        with self.lock:
            at = self.shelf.next_time()
        longest = 3600.0 if self._held_since is None else _UNCOMMITTED
        return longest if at is None else min(max(at - self._elapsed(), _SHORTEST), longest)

    def set_paused(self, paused: bool) -> None:
        """Hand out nothing while it is paused. The thread pauses the partitions, and goes on polling: the group keeps
        us, and what lies on the shelf stays there, untried."""
        if paused != self._is_paused:
            self._is_paused = paused
            self._settled.set()
            self.arrived.set()

    def settled(self) -> None:
        """Wake the thread: something was settled. Much of it is committed before it keeps others from being begun."""
        self._commits.soon(now=4 * self.shelf.uncommitted > self._largest)
        self._settled.set()
        self.arrived.set()

    async def aclose(self) -> None:
        """Commit what is finished and leave the group."""
        self._closing.set()
        self._settled.set()
        await asyncio.to_thread(self._thread.join, _LEAVE)

    # -- in the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._join()
            while not self._closing.is_set():
                if self._rejoins:
                    self._rejoin()
                self._commits.step(self._consumer)
                self._steer()
                messages = self._polled()
                if self._handover.is_half_done(self._consumer):
                    self._join_anew()
                self._take_in(messages)
                if not messages and (error := self._doubt.trouble(self._consumer)) is not None:
                    self._in_trouble(error)
        except BaseException as error:
            log.exception("the consumer of %s ends: this is a bug", self._source)
            self._bug = error
            self._wake()
        finally:
            self._leave()

    def _join(self) -> None:
        self._handover.joins_as(self._membership.name, self._consumer)
        self._subscribe()

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _rejoin(self) -> None:
        """Join the group again, as another member; what we had is somebody else's."""
        self._rejoins = self._halted = False
        with self.lock:
            self.shelf.revoke(list(self.shelf.partitions))
        self._consumer.close()
        self._consumer = self._made()
        self._join()

    def _join_anew(self) -> None:
        """Leave the group and come back as the same member: all partitions are given out again. Nothing of ours is
        begun meanwhile, so that nothing has to be done again."""
        log.warning(HALF_DONE, {"name": self._membership.name, "group": self._options.group})
        with self.lock:
            self.shelf.stop(list(self.shelf.partitions))
        self._consumer.unsubscribe()
        self._subscribe()

    def _polled(self) -> list[Any]:
        """What has come; waits a moment for it. Polls even without capacity, or the group would drop us."""
        if self.shelf.ready >= self._ahead:
            return self._wait_for_capacity()
        if self._halted:
            self._halted = False
            self._resume()
        self._full_since = None
        messages: list[Any] = self._consumer.consume(_BATCH, 0)
        if messages:
            return messages
        first = self._consumer.poll(_SHORT_TICK if self._is_busy() else _TICK)
        return [] if first is None else [first, *self._consumer.consume(_BATCH - 1, 0)]

    def _is_busy(self) -> bool:
        return self._commits.is_pending or any(partition.open for partition in self.shelf.partitions.values())

    def _wait_for_capacity(self) -> list[Any]:
        self._settled.clear()
        if self._commits.is_on_its_way:  # its answer comes with a poll, and perhaps one message
            self._settled.wait(_SHORTEST)
            first = self._consumer.poll(0)
            return [] if first is None else [first]
        self._settled.wait(_SHORT_TICK if self._commits.is_pending else _TICK)
        self._full_since = self._full_since or time.monotonic()
        if self.shelf.ready < self._ahead or time.monotonic() - self._full_since < _FULL_FOR:
            return []
        if not self._halted:
            self._halted = True
            self._consumer.pause(self._consumer.assignment())
        messages: list[Any] = self._consumer.consume(_BATCH, 0)
        return messages

    def _resume(self) -> None:
        """Read on, but for what is paused for another reason."""
        if self._has_paused or self._halted:
            return
        paused = {place for place, partition in self.shelf.partitions.items() if partition.paused}
        self._consumer.resume(
            [given for given in self._consumer.assignment() if (given.topic, given.partition) not in paused]
        )

    def _take_in(self, messages: Sequence[Any]) -> None:
        if not messages:
            return
        self.trouble = None  # but for what is among them
        records: list[Record] = []
        partitions, last = self.shelf.partitions, -1
        partition: Partition | None = None
        following, is_fresh, is_done = 0, False, False
        topic = self._topics[0] if len(self._topics) == 1 else None
        ends: list[tuple[Place, int]] = []
        for raw in messages:
            if raw.error() is not None:
                if raw.error().code() == KafkaError._PARTITION_EOF:  # where the driver was told to say so
                    ends.append(((raw.topic(), raw.partition()), raw.offset()))
                else:
                    self._in_trouble(raw.error())
                continue
            number = raw.partition()
            if number != last or topic is None:
                last, partition = number, partitions.get((topic or raw.topic(), number))
                following = 0 if partition is None else _following(partition, records)
                is_fresh = partition is not None and not partition.done_before
            offset = raw.offset()
            if partition is None or offset < following:
                continue  # fetched before its partition was taken from us
            following = offset + 1
            headers = _headers(raw)
            if is_fresh and not headers and len(raw) and offset >= partition.suspect_before:  # as almost all are
                records.append(Record(partition, offset, None, False, raw))
            else:
                records.append(self._record(partition, raw, offset, headers))
                is_done |= records[-1].done
        with self.lock:
            ours = [record for record in records if record.partition.alive and not record.partition.leaving]
            self.shelf.add(ours, self._elapsed())
            for place, end in ends:  # markers of transactions lie before it, which nobody receives
                if place in partitions:
                    partitions[place].next = max(partitions[place].next, end)
        if ends or is_done:
            self._commits.soon()
        self._wake()

    def _record(
        self, partition: Partition, raw: Any, offset: int, headers: list[tuple[str, bytes | None]] | None
    ) -> Record:
        if offset in partition.done_before:
            return Record(partition, offset, GONE, done=True)
        suspect = offset < partition.suspect_before
        origin = f"{partition.name}{offset}"
        if not headers:
            return Record(partition, offset, self._reading.plain(raw, origin), suspect)
        try:
            arrived = self._reading.full(raw, headers, origin)
        except Exception as error:  # whatever its headers did to us: it becomes a letter, and what is behind it goes on
            log.exception("the headers of %s cannot be read: it is buried", origin)
            why = f"its headers cannot be read: {type(error).__name__}: {error}"
            return Record(partition, offset, self._reading.unread(raw, headers, origin), suspect, unreadable=why)
        # on its own topic nothing waits: a stranger's header there would hold the offset back for as long as it likes
        due = 0.0 if partition.place[0] == self._source else self._due(arrived)
        return Record(partition, offset, arrived.message, suspect, due=due, failures=arrived.failures, at=arrived.at)

    def _due(self, arrived: Arrived) -> float:
        """The due time on the clock of the shelf."""
        if arrived.due is None:
            return 0.0
        return self._elapsed() + (arrived.due - self._steady.micros()) / 1e6

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.arrived.set)

    def _steer(self) -> None:
        """Pause partitions with too much that is not finished, and resume them when there is less."""
        if self._is_paused != self._has_paused:
            self._pause_or_resume()
        most, largest = self._options.most_open, self._options.most_bytes
        for partition in self.shelf.partitions.values():
            size, weight = len(partition.open), partition.bytes
            if not partition.paused and (size >= most or weight >= largest):
                partition.paused = True
                self._consumer.pause([TopicPartition(*partition.place)])
            elif partition.paused and size <= most // 2 and weight <= largest // 2:
                partition.paused = False
                if not self._has_paused:
                    self._consumer.resume([TopicPartition(*partition.place)])

    def _pause_or_resume(self) -> None:
        """Carry out what `set_paused` was told, on the partitions that we have; `_on_assign` sees to the others."""
        self._has_paused = self._is_paused
        if self._has_paused:
            self._consumer.pause(self._consumer.assignment())
        else:
            self._resume()

    def _is_refused(self, error: Any) -> bool:
        """Whether the group does not take this member as it is: then it joins again as another one."""
        if error.code() in FENCED and (name := self._membership.lose_name()) is not None:
            log.error(TAKEN, {"name": name, "group": self._options.group})
            self._rejoins = True
        elif error.code() == KafkaError.INVALID_SESSION_TIMEOUT and not self._options.has_session:
            self._rejoins = self._membership.lengthen()
        return self._rejoins

    def _in_trouble(self, error: Any) -> None:
        if self._is_refused(error):
            return
        self.trouble = why(error, self._options.servers, self._source)
        self._wake()

    def _on_error(self, error: Any) -> None:
        if self._is_refused(error):
            return
        if error.code() in AWAY:
            self._doubt.arise()
            if error.code() != KafkaError._ALL_BROKERS_DOWN:
                return  # one broker of several, or one attempt of many: librdkafka goes on by itself
        self._in_trouble(error)

    # -- rebalances ----------------------------------------------------------------------------------------------

    def _on_assign(self, consumer: Any, assigned: list[Any]) -> None:
        """Where each begins, and whether its last owner has left something begun. Marked as open before anything of
        it is handed out, so that a crash of ours is seen by who comes next."""
        self._handover.assigned()
        if not assigned:
            return
        partitions = self._begin(consumer, assigned)
        self._commits.begin(consumer, partitions)  # where it fails, a crash of ours would not be noticed, no more
        with self.lock:
            self.moves += 1
            for partition in partitions:
                self.shelf.assign(partition)
        given = [TopicPartition(*partition.place, partition.next) for partition in partitions]
        consumer.incremental_assign(given)
        consumer.resume(given)  # librdkafka remembers what was paused when it was taken from us, and would read nothing
        if self._has_paused:
            consumer.pause(given)

    def _begin(self, consumer: Any, assigned: list[Any]) -> list[Partition]:
        """Asked until somebody answers: without its offset a partition would be read from anywhere."""
        while not self._closing.is_set():
            try:
                return [
                    self._begun(consumer, committed) for committed in consumer.committed(assigned, timeout=_PATIENCE)
                ]
            except KafkaException as error:
                self._in_trouble(inner(error))
                self._closing.wait(_FINISH)
        return []

    def _begun(self, consumer: Any, found: Any) -> Partition:
        place: Place = (found.topic, found.partition)
        if found.offset >= 0 and not is_open(found.metadata):
            return Partition(place, found.offset, read=self._read_later)
        first, following = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_PATIENCE)
        if found.offset >= 0:
            reach = self._options.most_open + self._ahead + _BATCH  # further than that nobody comes
            done = finished_in(found.metadata, found.offset)
            suspect_before = min(following, found.offset + reach)
            return Partition(place, found.offset, suspect_before, done_before=done, read=self._read_later)
        start = first if self._options.start == "earliest" else following
        return Partition(place, start, read=self._read_later)

    def _on_revoke(self, consumer: Any, revoked: list[Any]) -> None:
        """Hand out nothing more of it, let handlers finish for a moment, commit what is finished, drop the rest."""
        places = [(partition.topic, partition.partition) for partition in revoked]
        with self.lock:
            self.shelf.stop(places)
        self._wait_until_free(places)
        self._commits.end(consumer, places)

    def _on_lost(self, consumer: Any, lost: list[Any]) -> None:
        """Drop partitions that somebody else has already: there is nothing to commit."""
        with self.lock:
            self.shelf.revoke([(partition.topic, partition.partition) for partition in lost])

    def _wait_until_free(self, places: Sequence[Place]) -> None:
        end = time.monotonic() + _FINISH
        while not self._closing.is_set() and time.monotonic() < end:
            self._settled.clear()
            with self.lock:
                if not self.shelf.is_held(places):
                    return
            self._settled.wait(_TICK)

    def _leave(self) -> None:
        self._commits.end(self._consumer, list(self.shelf.partitions))
        self._consumer.close()


def _following(partition: Partition, records: Sequence[Record]) -> int:
    """The lowest offset that has not come yet."""
    last = next((record for record in reversed(records) if record.partition is partition), None)
    return partition.next if last is None else last.offset + 1


def _headers(raw: Any) -> list[tuple[str, bytes | None]] | None:
    """None where the driver cannot read them: names that are no text."""
    try:
        headers: list[tuple[str, bytes | None]] | None = raw.headers()
    except (UnicodeDecodeError, ValueError):
        return None
    return headers
