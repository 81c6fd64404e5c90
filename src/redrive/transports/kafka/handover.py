"""Whether a named worker that comes back has left a handover half done. Then it has to leave its group for a moment.

Partitions move in two steps: who has too many gives some up, and joins once more, whereupon they are given to others.
Brokers ask a member that comes back under its name within its session for neither:

    billing-1   has 0 1 2 3
    billing-2   joins; billing-1 is told to give up 2 3, and is killed before it joins once more
    billing-1   is back, and has 0 1 at once, without a rebalance; nobody has 2 3, and nobody will

All members say that all is well. Only who comes back can know, so it looks: once before it joins, whether it was there
before, and once when it has its partitions, whether each has a reader.

A question about a group that nobody answers in time can end the process (librdkafka 2.16, its issue 4605), so it is
asked only when the coordinator of the group has just answered another one, and has long to answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from redrive.transports.kafka.driver import (
    AdminClient,
    ConsumerGroupState,
    KafkaException,
    TopicPartition,
    inner,
    log,
    quietly,
)
from redrive.transports.kafka.options import Options
from redrive.transports.kafka.shelf import Place

_PATIENCE = 3.0
_LONG_PATIENCE = 30.0  # for who has just answered
_AGAIN = 1.0  # seconds until a group that did not answer is asked again


class Handover:
    """That of one consumer; all of it happens in the thread that polls."""

    def __init__(self, options: Options, topics: Sequence[str]) -> None:
        self._options = options
        self._topics = topics
        self._comes_back = False  # and it is not known yet what it had left behind
        self._is_assigned = False
        self._following = 0.0  # when the next look is due

    def joins_as(self, name: str | None, consumer: Any) -> None:
        """Before it joins. Where nobody answers, it may have been there."""
        self._is_assigned, self._comes_back = False, name is not None
        if name is None:
            return
        try:
            self._comes_back = name in {member.group_instance_id for member in self._group(consumer).members}
        except KafkaException as error:
            log.debug("nobody says who is in group %s: %s", self._options.group, inner(error))

    def assigned(self) -> None:
        """It has its partitions, or was told that there are none for it."""
        self._is_assigned = True

    def is_half_done(self, consumer: Any) -> bool:
        """Whether there are partitions that nobody reads, and that nobody is about to give out. Said once."""
        if not self._comes_back or not self._is_assigned or time.monotonic() < self._following:
            return False
        try:
            unread = self._unread(consumer)
        except KafkaException as error:
            log.debug("nobody says who reads %s: %s", self._topics[0], inner(error))
            self._following = time.monotonic() + _AGAIN
            return False
        self._comes_back = False
        return bool(unread)

    def _unread(self, consumer: Any) -> set[Place]:
        """None while a rebalance is under way, which sees to it."""
        group = self._group(consumer)
        if group.state != ConsumerGroupState.STABLE:
            return set()
        read = {
            (place.topic, place.partition)
            for member in group.members
            if member.assignment is not None
            for place in member.assignment.topic_partitions
        }
        return self._places(consumer) - read

    def _places(self, consumer: Any) -> set[Place]:
        found = {topic: consumer.list_topics(topic, timeout=_PATIENCE).topics[topic] for topic in self._topics}
        return {(topic, number) for topic, known in found.items() for number in known.partitions}

    def _group(self, consumer: Any) -> Any:
        consumer.committed([TopicPartition(self._topics[0], 0)], timeout=_PATIENCE)
        admin: Any = AdminClient(quietly(self._options.client()))
        [answer] = admin.describe_consumer_groups([self._options.group], request_timeout=_LONG_PATIENCE).values()
        return answer.result()
