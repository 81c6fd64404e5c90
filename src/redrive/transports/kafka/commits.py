"""Commits how far each partition is finished, soon after something is.

What a crash repeats is what was begun and is not committed yet. `Reader.take` hands out so little that it is never more
than a worker may hold; where it hands out less for that reason, the next commit does not wait its turn.

All of it happens in the thread that polls, which waits for each answer: while one thread polls, the driver lets no
other commit (confluent-kafka 2.16), and an answer that nobody waits for comes with a poll, when there may be no room.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redrive.transports.kafka.driver import KafkaError, KafkaException, TopicPartition, inner, log
from redrive.transports.kafka.finished import LONGEST, OPEN, metadata_of
from redrive.transports.kafka.shelf import Partition, Place, Shelf

_EVERY = 0.02  # seconds between two commits that nobody waits for
_SHARE = 10  # what a commit costs to prepare is at most one part in so many of the time
_AGAIN = 0.1  # seconds after a commit that failed


class Commits:
    """The committed offsets of one consumer.

    lock        guards the shelf
    confirmed   called after each commit, in the thread that polls
    """

    def __init__(self, shelf: Shelf, lock: threading.Lock, source: str, confirmed: Callable[[], None]) -> None:
        self._shelf = shelf
        self._lock = lock
        self._source = source
        self._confirmed = confirmed
        self._is_wanted = self._is_urgent = False
        self._following = 0.0  # when the next one is due
        self._longest = LONGEST

    @property
    def is_pending(self) -> bool:
        """Whether something is to be committed."""
        return self._is_wanted

    def soon(self, *, now: bool = False) -> None:
        """Something is finished; `now`: and somebody waits until it is committed. Called in whatever thread."""
        self._is_wanted = True
        if now:
            self._is_urgent = True

    # -- in the thread that polls --------------------------------------------------------------------------------

    def begin(self, consumer: Any, partitions: Sequence[Partition]) -> None:
        """Mark partitions as open before anything of them is handed out, so that a crash of ours is seen."""
        self._at_once(consumer, [self._offset(partition, OPEN) for partition in partitions])

    def step(self, consumer: Any) -> None:
        """Commit what has changed, if it is time."""
        now = time.monotonic()
        if not self._is_wanted or (now < self._following and not self._is_urgent):
            return
        self._is_wanted = self._is_urgent = False
        with self._lock:
            changed = [partition for partition in self._shelf.partitions.values() if partition.is_changed]
            offsets = [self._offset(partition, OPEN) for partition in changed]
            standings = [partition.standing for partition in changed]
        self._following = now + max(_EVERY, (time.monotonic() - now) * _SHARE)
        if offsets and (error := self._at_once(consumer, offsets)) is not None:
            log.debug("offsets of %s are not committed yet: %s", self._source, error)
            self._is_wanted, self._is_urgent, self._following = True, False, time.monotonic() + _AGAIN
            return
        with self._lock:
            for partition, standing in zip(changed, standings, strict=True):
                partition.committed = standing
        self._confirmed()

    def end(self, consumer: Any, places: Iterable[Place]) -> None:
        """Commit what is finished of partitions that we give up, and drop them. Who comes next suspects nothing of
        those of which nothing is begun and unfinished."""
        with self._lock:
            partitions = self._shelf.revoke(places)
            offsets = [self._offset(partition, "" if partition.is_clean else OPEN) for partition in partitions]
        if offsets and (error := self._at_once(consumer, offsets)) is not None:
            log.warning("what was finished of %s could not be committed, and is repeated: %s", self._source, error)

    def _at_once(self, consumer: Any, offsets: list[Any]) -> KafkaError | None:
        """Commit these, and wait for the answer: why they could not be."""
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False)
            error = next((answer.error for answer in answers if answer.error is not None), None)
        except KafkaException as raised:
            error = inner(raised)
        if error is None or error.code() != KafkaError.OFFSET_METADATA_TOO_LARGE or not self._longest:
            return error
        # this broker takes less beside an offset than usual (`offset.metadata.max.bytes`): the mark, or not even that
        self._longest = len(OPEN) if self._longest > len(OPEN) else 0
        return self._at_once(consumer, [_shortened(offset, self._longest) for offset in offsets])

    def _offset(self, partition: Partition, mark: str) -> Any:
        text = metadata_of(partition.base, partition.finished_runs(), self._longest) if mark else mark
        return TopicPartition(*partition.place, partition.base, text)


def _shortened(offset: Any, longest: int) -> Any:
    text = OPEN if offset.metadata and longest else ""
    return TopicPartition(offset.topic, offset.partition, offset.offset, text)
