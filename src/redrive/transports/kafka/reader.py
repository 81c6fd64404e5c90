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
from redrive.transports.kafka.driver import (
    AWAY,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
    driver_log,
    inner,
    log,
    why,
)
from redrive.transports.kafka.options import Options
from redrive.transports.kafka.shelf import Partition, Place, Record, Shelf
from redrive.transports.kafka.wire import Arrived, Reading

OPEN = "redrive: open"
"""Beside a committed offset: who committed it has begun something behind it. Gone when a worker ends cleanly."""
_BATCH = 500
_AHEAD = 1_000  # messages that wait here, ready, before no more are polled
_TICK = 0.05
_SHORTEST = 0.001  # of a wait: a remainder that a clock rounds to nothing would never pass
_COMMIT_EVERY = 0.1
_FULL_FOR = 1.0  # seconds without a poll, when there is no capacity, before partitions are paused and polled again
_FINISH = 1.0  # seconds that handlers get to finish what is about to be taken from us
_PATIENCE = 10.0
_LEAVE = 15.0


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
    ) -> None:
        self.shelf = Shelf(lease=lease.total_seconds(), holds=holds)
        self.lock = threading.Lock()
        self.arrived = asyncio.Event()
        self.trouble: str | None = None  # why nothing comes
        self._options = options
        self._source = source
        self._topics = list(topics)
        self._lease = lease
        self._elapsed = elapsed
        self._steady = steady
        self._reading = Reading(source)
        self._loop = asyncio.get_running_loop()
        self._settled = threading.Event()  # something was settled: there may be capacity, or nothing held any more
        self._closing = threading.Event()
        self._bug: BaseException | None = None
        self._commit_at = 0.0
        self._halted = False
        self._full_since: float | None = None
        self._consumer: Any = Consumer(
            {
                **options.consumer(lease),
                "error_cb": self._on_error,
                "on_commit": self._on_commit,
                "logger": driver_log,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"redrive-kafka-{source}", daemon=True)
        self._thread.start()

    # -- in the event loop ---------------------------------------------------------------------------------------

    def take(self, limit: int) -> list[Record]:
        """Lease up to so many."""
        if self._bug is not None:
            raise self._bug
        with self.lock:
            taken = self.shelf.take(limit, self._elapsed())
            has_capacity = self.shelf.ready < _AHEAD // 2
        if has_capacity:
            self._settled.set()
        return taken

    def still_first(self, records: Sequence[Record]) -> list[Record]:
        """Those that may still go: while they were counted, one before them in their lane may have been given back."""
        with self.lock:
            return self.shelf.still_first(records, self._elapsed())

    def deliveries(self, records: Sequence[Record]) -> list[Delivery]:
        return self.shelf.deliveries(records)

    def wait_seconds(self) -> float:
        """Seconds until something that we hold is due."""
        with self.lock:
            at = self.shelf.next_time()
        return 3600.0 if at is None else max(at - self._elapsed(), _SHORTEST)

    def settled(self) -> None:
        """Wake the thread: something was settled."""
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
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._closing.is_set():
                self._commit()
                self._steer()
                self._take_in(self._polled())
        except BaseException as error:
            log.exception("the consumer of %s ends: this is a bug", self._source)
            self._bug = error
            self._wake()
        finally:
            self._leave()

    def _polled(self) -> list[Any]:
        """What has come; waits a moment for it. Polls even without capacity, or the group would drop us."""
        if self.shelf.ready >= _AHEAD:
            return self._wait_for_capacity()
        if self._halted:
            self._resume()
        self._full_since = None
        messages: list[Any] = self._consumer.consume(_BATCH, 0)
        if messages:
            return messages
        first = self._consumer.poll(_TICK)
        return [] if first is None else [first, *self._consumer.consume(_BATCH - 1, 0)]

    def _wait_for_capacity(self) -> list[Any]:
        self._settled.clear()
        self._settled.wait(_TICK)
        self._full_since = self._full_since or time.monotonic()
        if self.shelf.ready < _AHEAD or time.monotonic() - self._full_since < _FULL_FOR:
            return []
        if not self._halted:
            self._halted = True
            self._consumer.pause(self._consumer.assignment())
        messages: list[Any] = self._consumer.consume(_BATCH, 0)
        return messages

    def _resume(self) -> None:
        self._halted = False
        paused = {place for place, partition in self.shelf.partitions.items() if partition.paused}
        self._consumer.resume(
            [given for given in self._consumer.assignment() if (given.topic, given.partition) not in paused]
        )

    def _take_in(self, messages: Sequence[Any]) -> None:
        if not messages:
            return
        records: list[Record] = []
        partitions, last = self.shelf.partitions, -1
        partition: Partition | None = None
        following = 0
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
            offset = raw.offset()
            if partition is None or offset < following:
                continue  # fetched before its partition was taken from us
            following = offset + 1
            records.append(self._record(partition, raw, offset))
        with self.lock:
            self.shelf.add([record for record in records if record.partition.alive], self._elapsed())
            for place, end in ends:  # markers of transactions lie before it, which nobody receives
                if place in partitions:
                    partitions[place].next = max(partitions[place].next, end)
        self.trouble = None
        self._wake()

    def _record(self, partition: Partition, raw: Any, offset: int) -> Record:
        suspect = offset < partition.suspect_before
        headers, origin = _headers(raw), f"{partition.name}{offset}"
        if not headers:
            return Record(partition, offset, self._reading.plain(raw, origin), suspect)
        arrived = self._reading.full(raw, headers, origin)
        return Record(partition, offset, arrived.message, suspect, self._due(arrived), arrived.failures)

    def _due(self, arrived: Arrived) -> float:
        """The due time on the clock of the shelf."""
        if arrived.due is None:
            return 0.0
        return self._elapsed() + (arrived.due - self._steady.micros()) / 1e6

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.arrived.set)

    def _commit(self) -> None:
        """Commit from time to time how far each partition is finished."""
        now = time.monotonic()
        if now < self._commit_at:
            return
        self._commit_at = now + _COMMIT_EVERY
        with self.lock:
            offsets = [
                _offset(partition, OPEN)
                for partition in self.shelf.partitions.values()
                if partition.base != partition.asked
            ]
            for partition in self.shelf.partitions.values():
                partition.asked = partition.base
        if offsets:
            self._commit_soon(offsets)

    def _commit_soon(self, offsets: list[Any]) -> None:
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._on_commit(inner(error), offsets)

    def _on_commit(self, error: Any, offsets: Sequence[Any]) -> None:
        """Note what could not be committed: it is committed again later."""
        if error is None:
            return
        log.debug("offsets of %s are not committed yet: %s", self._source, error)
        with self.lock:
            for offset in offsets:
                partition = self.shelf.partitions.get((offset.topic, offset.partition))
                if partition is not None:
                    partition.asked = -1

    def _steer(self) -> None:
        """Pause partitions with too much that is not finished, and resume them when there is less."""
        most, largest = self._options.most_open, self._options.most_bytes
        for partition in self.shelf.partitions.values():
            size, weight = len(partition.open), partition.bytes
            if not partition.paused and (size >= most or weight >= largest):
                partition.paused = True
                self._consumer.pause([TopicPartition(*partition.place)])
            elif partition.paused and size <= most // 2 and weight <= largest // 2:
                partition.paused = False
                self._consumer.resume([TopicPartition(*partition.place)])

    def _in_trouble(self, error: Any) -> None:
        self.trouble = why(error, self._options.servers, self._source)
        self._wake()

    def _on_error(self, error: Any) -> None:
        if error.code() in AWAY and error.code() != KafkaError._ALL_BROKERS_DOWN:
            return  # one broker of several, or one attempt of many: librdkafka goes on by itself
        self._in_trouble(error)

    # -- rebalances ----------------------------------------------------------------------------------------------

    def _on_assign(self, consumer: Any, assigned: list[Any]) -> None:
        """Where each begins, and whether its last owner has left something begun. Marked as open before anything of
        it is handed out, so that a crash of ours is seen by who comes next."""
        if not assigned:
            return
        partitions = self._begin(consumer, assigned)
        with suppress(KafkaException):  # not marked, so a crash of ours would not be noticed; nothing would be lost
            consumer.commit(offsets=[_offset(partition, OPEN) for partition in partitions], asynchronous=False)
        with self.lock:
            for partition in partitions:
                self.shelf.assign(partition)
        consumer.incremental_assign([TopicPartition(*partition.place, partition.next) for partition in partitions])

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
        if found.offset >= 0 and found.metadata != OPEN:
            return Partition(place, found.offset)
        first, following = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_PATIENCE)
        if found.offset >= 0:
            reach = self._options.most_open + _AHEAD + _BATCH  # further than that nobody comes
            return Partition(place, found.offset, min(following, found.offset + reach))
        return Partition(place, first if self._options.start == "earliest" else following)

    def _on_revoke(self, consumer: Any, revoked: list[Any]) -> None:
        """Hand out nothing more of it, let handlers finish for a moment, commit what is finished, drop the rest."""
        places = [(partition.topic, partition.partition) for partition in revoked]
        with self.lock:
            self.shelf.stop(places)
        self._wait_until_free(places)
        self._give_up(consumer, places)

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

    def _give_up(self, consumer: Any, places: Sequence[Place]) -> None:
        with self.lock:
            offsets = [
                _offset(self.shelf.partitions[place], "" if self.shelf.partitions[place].is_clean else OPEN)
                for place in places
                if place in self.shelf.partitions
            ]
            self.shelf.revoke(places)
        if offsets:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                log.warning("what was finished of %s could not be committed, and is repeated: %s", self._source, error)

    def _leave(self) -> None:
        self._give_up(self._consumer, list(self.shelf.partitions))
        self._consumer.close()


def _following(partition: Partition, records: Sequence[Record]) -> int:
    """The lowest offset that has not come yet."""
    last = next((record for record in reversed(records) if record.partition is partition), None)
    return partition.next if last is None else last.offset + 1


def _offset(partition: Partition, mark: str) -> Any:
    return TopicPartition(*partition.place, partition.base, mark)


def _headers(raw: Any) -> list[tuple[str, bytes | None]] | None:
    """None where the driver cannot read them: names that are no text."""
    try:
        headers: list[tuple[str, bytes | None]] | None = raw.headers()
    except (UnicodeDecodeError, ValueError):
        return None
    return headers
