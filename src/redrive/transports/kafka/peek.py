"""Looks into the partitions of a source from where its group has committed to, with a consumer that joins no group.

What Kafka cannot tell: which of these messages a worker has in hand. It tells which member reads a partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import moment
from redrive.errors import UsageError
from redrive.transports.base import Queued, QueueState
from redrive.transports.kafka.driver import Consumer, KafkaException, TopicPartition, quietly
from redrive.transports.kafka.finished import Finished, finished_in
from redrive.transports.kafka.options import Options
from redrive.transports.kafka.shelf import Place
from redrive.transports.kafka.wire import Reading

_PATIENCE = 10.0
_TICK = 0.2


class Stretch(Struct, frozen=True):
    """A partition from the first message that is not finished to its end."""

    place: Place
    start: int
    end: int
    done: Finished


class Peeked(Struct, frozen=True):
    """A page, and where the next begins."""

    messages: tuple[Queued, ...]
    after: str | None


class Peek:
    """One look; blocks, so it is done in a thread."""

    def __init__(self, options: Options, source: str, now: int) -> None:
        self._options = options
        self._source = source
        self._now = now  # microseconds
        self._reading = Reading(source)

    def stretches(self, reach: Mapping[Place, tuple[int, int]]) -> list[Stretch]:
        """Where the group stands in each of these partitions, which have that first and that next offset."""
        consumer = Consumer(quietly({**self._options.client(), "group.id": self._options.group}))
        try:
            found = consumer.committed([TopicPartition(*place) for place in sorted(reach)], timeout=_PATIENCE)
        finally:
            consumer.close()
        return [self._stretch(place, *reach[place.topic, place.partition]) for place in found]

    def _stretch(self, committed: Any, first: int, following: int) -> Stretch:
        place = (committed.topic, committed.partition)
        if committed.offset >= 0:
            done = finished_in(committed.metadata, committed.offset)
            return Stretch(place, max(committed.offset, first), following, done)
        start = first if self._options.start == "earliest" else following
        return Stretch(place, start, following, finished_in(None, start))

    def page(self, stretches: Sequence[Stretch], state: QueueState | None, after: str | None, limit: int) -> Peeked:
        """The next messages that stand so, partition by partition."""
        found: list[Queued] = []
        consumer = Consumer(
            quietly({**self._options.client(), "group.id": "redrive-peek", "enable.auto.commit": False})
        )
        try:
            for place, offset, queued in self._messages(consumer, _from(stretches, after)):
                if len(found) == limit:
                    return Peeked(tuple(found), _cursor(place, offset))
                if state is None or queued.state is state:
                    found.append(queued)
        finally:
            with suppress(KafkaException):
                consumer.close()
        return Peeked(tuple(found), None)

    def _messages(self, consumer: Any, stretches: Sequence[Stretch]) -> Iterator[tuple[Place, int, Queued]]:
        for stretch in stretches:
            if stretch.start >= stretch.end:
                continue
            consumer.assign([TopicPartition(*stretch.place, stretch.start)])
            for raw in _read(consumer, stretch.end):
                if raw.offset() not in stretch.done:
                    yield stretch.place, raw.offset(), self._queued(raw)
            consumer.unassign()

    def _queued(self, raw: Any) -> Queued:
        origin = f"{raw.topic()}[{raw.partition()}]@{raw.offset()}"
        headers = _headers(raw)
        if not headers:
            return Queued(self._reading.plain(raw, origin), QueueState.READY, place=origin)
        try:
            arrived = self._reading.full(raw, headers, origin)
        except Exception:  # whatever its headers did to us, it is shown without them
            return Queued(self._reading.plain(raw, origin), QueueState.READY, place=origin)
        waits = raw.topic() != self._source and arrived.due is not None and arrived.due > self._now
        state = QueueState.DELAYED if waits else QueueState.READY
        until = moment(arrived.due) if waits and arrived.due is not None else None
        return Queued(arrived.message, state, arrived.failures, until, place=origin)


def _read(consumer: Any, end: int) -> Iterator[Any]:
    """What comes, up to that offset. Ends, too, if nothing comes: the last records may be markers of transactions."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        for raw in consumer.consume(100, _TICK):
            if raw.error() is not None:
                continue
            if raw.offset() >= end:
                return
            deadline = time.monotonic() + _PATIENCE
            yield raw
            if raw.offset() == end - 1:
                return
        [position] = consumer.position(consumer.assignment())
        if position.offset >= end:
            return


def _headers(raw: Any) -> list[tuple[str, bytes | None]] | None:
    try:
        headers: list[tuple[str, bytes | None]] | None = raw.headers()
    except (UnicodeDecodeError, ValueError):
        return None
    return headers


def _cursor(place: Place, offset: int) -> str:
    return f"{place[0]}:{place[1]}:{offset}"


def _from(stretches: Sequence[Stretch], after: str | None) -> list[Stretch]:
    """The stretches from where the page before has ended."""
    if after is None:
        return list(stretches)
    topic, _, rest = after.rpartition(":")[0].rpartition(":")
    offset = after.rpartition(":")[2]
    if not topic or not rest.isdecimal() or not offset.isdecimal():
        raise UsageError(f"{after!r} is no place in this queue: use `after` as the page before gave it")
    place = (topic, int(rest))
    later = [stretch for stretch in stretches if stretch.place > place]
    begun = [stretch for stretch in stretches if stretch.place == place]
    return [
        *(Stretch(place, max(stretch.start, int(offset)), stretch.end, stretch.done) for stretch in begun),
        *later,
    ]


def lags(stretches: Sequence[Stretch], readers: Mapping[Place, str]) -> Iterator[str]:
    """How far each partition is behind, and who reads it."""
    for stretch in stretches:
        topic, number = stretch.place
        if stretch.end > stretch.start or stretch.place in readers:
            who = readers.get(stretch.place)
            read = f"read by {who}" if who else "nobody reads it"
            behind = stretch.end - stretch.start
            yield f"{topic}[{number}]: {behind:,} from the committed offset {stretch.start} on; {read}"


def counted(messages: Sequence[Queued], counts: Sequence[int]) -> list[Queued]:
    """The messages with the attempts that were counted for them beside Kafka."""
    return [
        replace(queued, message=replace(queued.message, attempt=queued.message.attempt + tried)) if tried else queued
        for queued, tried in zip(messages, counts, strict=True)
    ]
