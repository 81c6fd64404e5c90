"""Receives: one request that waits while there is nothing, and many at once while there is much."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from math import ceil
from typing import Any

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.transports.base import Delivery
from redrive.transports.sqs.api import Api, Refusal
from redrive.transports.sqs.batching import AT_ONCE
from redrive.transports.sqs.leases import Known, Lease
from redrive.transports.sqs.queues import Queue, Queues
from redrive.transports.sqs.wire import Unpacked, unpack

_SYSTEM = (
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SentTimestamp",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)
_FULL = 0.8  # of what a wave could bring: then the next one is twice as wide


class Receiver:
    """Asks for messages of one endpoint.

    width   of a source: how many requests its next wave has; 0: one that waits for the first message
    """

    def __init__(
        self, api: Api, queues: Queues, clock: Clock, known: Known, *, lease: timedelta, fifo: bool, polls: int
    ) -> None:
        self._api = api
        self._queues = queues
        self._clock = clock
        self._known = known
        self._lease = lease
        self._fifo = fifo
        self._polls = polls
        self._width: dict[str, int] = {}

    async def wave(self, source: str, limit: int, wait: timedelta) -> list[tuple[Delivery, Unpacked]]:
        """What several requests bring that are made at once; waits so long if the last wave brought little."""
        queue = await self._queues.get(source, make=True)
        width = min(self._width.get(source, 0), self._polls, ceil(limit / AT_ONCE))
        asks = [min(AT_ONCE, limit - start * AT_ONCE) for start in range(max(width, 1))]
        seconds = 0 if width else round(wait.total_seconds())
        answers = await asyncio.gather(*(self._poll(queue, ask, seconds) for ask in asks), return_exceptions=True)
        found = [self._read(source, queue, *found) for some in answers if isinstance(some, list) for found in some]
        errors = [error for error in answers if isinstance(error, BaseException)]
        if errors and not found:
            self._forget_missing(source, errors)
            raise errors[0]
        got, asked = len(found), sum(asks)
        self._width[source] = 2 * max(width, 1) if got >= _FULL * asked else ceil(got / AT_ONCE) if width else 0
        return found

    def _forget_missing(self, source: str, errors: Sequence[BaseException]) -> None:
        if any(isinstance(error, Refusal) and error.is_missing for error in errors):
            self._queues.forget(source)  # it was deleted: the next time it is looked for, and made

    async def _poll(self, queue: Queue, limit: int, seconds: int) -> list[tuple[dict[str, Any], float]]:
        """Records, and when they were asked for: from then on a lease counts, so that we never think it longer than
        SQS does."""
        since = self._clock.elapsed()
        answer = await self._api.call(
            "ReceiveMessage",
            patience=seconds,
            QueueUrl=queue.url,
            MaxNumberOfMessages=limit,
            VisibilityTimeout=ceil(self._lease.total_seconds()),
            WaitTimeSeconds=seconds,
            MessageSystemAttributeNames=_SYSTEM,
            AttributeNames=_SYSTEM,  # as servers know it that are older than the other name
            MessageAttributeNames=("All",),
        )
        return [(record, since) for record in answer.get("Messages") or ()]

    def _read(self, source: str, queue: Queue, record: dict[str, Any], since: float) -> tuple[Delivery, Unpacked]:
        read = unpack(record, source, queue.name, self._clock.now())
        lease = Lease(queue, record, since, since + self._lease.total_seconds())
        untried, settled = self._known.of(lease.id)
        message = read.message
        attempt = message.attempt + max(0, lease.count - 1 - untried)
        if attempt != message.attempt:
            message = replace(message, attempt=attempt)
        lapsed = read.redelivered or lease.count - 1 > settled
        group = lease.system.get("MessageGroupId") if self._fifo else None
        delivery = Delivery(
            message,
            lease,
            read.failures,
            redelivered=lapsed,
            lane=None if group is None else (source, group),
            perhaps_untried=self._fifo and lapsed,
            unreadable=read.unreadable,
        )
        return delivery, read
