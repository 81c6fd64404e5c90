"""Commits how far each partition is finished, soon after something is.

What a crash repeats is what was begun and is not committed yet. `Reader.take` hands out so little that it is never more
than a worker may hold; where it hands out less for that reason, the next commit does not wait its turn.

All of it happens in the thread that polls: while one thread polls, the driver lets no other commit (confluent-kafka
2.16). One commit is on its way at a time, and its answer comes with a poll: whoever waits for capacity polls meanwhile
(`Reader`). What is committed when partitions come and go is waited for.

    step ──▶ on its way ──▶ answered: committed, or wanted again
                  └── no answer for a while: another one is sent
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redrive.transports.kafka.driver import KafkaError, KafkaException, TopicPartition, inner, log
from redrive.transports.kafka.finished import LONGEST, OPEN, metadata_of
from redrive.transports.kafka.shelf import Partition, Place, Shelf, Standing

_EVERY = 0.02  # seconds between two commits that nobody waits for
_SHARE = 10  # what a commit costs to prepare is at most one part in so many of the time
_AGAIN = 0.1  # seconds after a commit that failed
_NO_ANSWER = 10.0  # seconds until an answer is not waited for any more


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
        self._sent: list[tuple[Partition, Standing]] = []  # on its way
        self._sent_at = 0.0

    @property
    def is_on_its_way(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._sent)

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
        if self._sent and now - self._sent_at < _NO_ANSWER:
            return
        self._is_wanted = self._is_urgent = False
        with self._lock:
            changed = [partition for partition in self._shelf.partitions.values() if partition.is_changed]
            offsets = [self._offset(partition, OPEN) for partition in changed]
            standings = [partition.standing for partition in changed]
        self._following = now + max(_EVERY, (time.monotonic() - now) * _SHARE)
        if not offsets:
            return
        self._sent, self._sent_at = list(zip(changed, standings, strict=True)), now
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as raised:
            self._not_committed(inner(raised))

    def answered(self, error: KafkaError | None, offsets: Sequence[Any]) -> None:
        """The answer to a commit that was not waited for, as the driver calls it back."""
        error = error or next((offset.error for offset in offsets if offset.error is not None), None)
        if error is not None:
            return self._not_committed(error)
        sent, self._sent = self._sent, []
        with self._lock:
            for partition, standing in sent:
                partition.committed = max(partition.committed, standing)
        return self._confirmed()

    def _not_committed(self, error: KafkaError) -> None:
        log.debug("offsets of %s are not committed yet: %s", self._source, error)
        self._sent = []
        self._shorten(error)
        self._is_wanted, self._is_urgent, self._following = True, False, time.monotonic() + _AGAIN

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
        if error is None or not self._shorten(error):
            return error
        return self._at_once(consumer, [_shortened(offset, self._longest) for offset in offsets])

    def _shorten(self, error: KafkaError) -> bool:
        """Where this broker takes less beside an offset than usual (`offset.metadata.max.bytes`): from now on only the
        mark, or not even that. Whether there is something to leave out."""
        if error.code() != KafkaError.OFFSET_METADATA_TOO_LARGE or not self._longest:
            return False
        self._longest = len(OPEN) if self._longest > len(OPEN) else 0
        return True

    def _offset(self, partition: Partition, mark: str) -> Any:
        text = metadata_of(partition.base, partition.finished_runs(), self._longest) if mark else mark
        return TopicPartition(*partition.place, partition.base, text)


def _shortened(offset: Any, longest: int) -> Any:
    text = OPEN if offset.metadata and longest else ""
    return TopicPartition(offset.topic, offset.partition, offset.offset, text)
