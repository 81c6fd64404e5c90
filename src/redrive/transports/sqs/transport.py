"""Amazon SQS as a transport."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from math import ceil

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.model import Holds, Message, Release
from redrive.transports.base import (
    Advice,
    Delivery,
    Demand,
    Depth,
    Features,
    Listing,
    QueueState,
    SendResult,
    Settlement,
)
from redrive.transports.sqs.api import Api, Refusal
from redrive.transports.sqs.examining import Examiner
from redrive.transports.sqs.leases import Known
from redrive.transports.sqs.options import Options, options_of
from redrive.transports.sqs.queues import Queues
from redrive.transports.sqs.receiving import Receiver
from redrive.transports.sqs.sending import Sender
from redrive.transports.sqs.settling import Settler, lease_of

_DEPTHS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible")
_IDLE = 0.2  # seconds between two requests that do not wait
_EARLY = timedelta(seconds=1)
_LOOKS = 16  # requests about depths at once
_UNSEEN = (
    "messages are not shown: SQS shows one only to who takes it, which hides it from everybody else and counts as a "
    "delivery"
)


class SqsTransport:
    """Queues of Amazon SQS. A source is a queue, made when it is first used. Standard queues, or, by the URL, FIFO
    queues: SQS promises quite different things for the two."""

    features = Features(
        durable=True,
        native_delay=True,
        counts_attempts=True,
        keeps_history=True,
        ordered_by="none",
        idempotent_send=False,
        shared=True,
        urgent_first=False,
        delays_sends=True,
    )

    def __init__(self, options: Options, *, clock: Clock, lease: timedelta) -> None:
        self.options = options
        self._clock = clock
        self._wait = min(options.wait, timedelta(seconds=lease.total_seconds() // 3))
        self._api = Api(options)
        self._known = Known()
        self._queues = Queues(self._api, options, max(1, ceil(lease.total_seconds())))
        self._sender = Sender(self._api, self._queues, clock, fifo=options.fifo)
        self._settler = Settler(self._api, self._sender, clock, self._known, lease=lease, fifo=options.fifo)
        self._receiver = Receiver(
            self._api, self._queues, clock, self._known, lease=lease, fifo=options.fifo, polls=options.polls
        )
        self._pauses: dict[str, asyncio.Event] = {}  # of paused sources: set when they go on

    # -- receiving -----------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        while True:
            while source in self._pauses:
                await self._pauses[source].wait()
            asked = asyncio.ensure_future(self._receive(source, limit))
            try:
                deliveries = await asyncio.shield(asked)
            except asyncio.CancelledError:
                with suppress(TransportUnavailable):  # what the request brings all the same is given back
                    await self._give_back(await asked)
                raise
            if source in self._pauses:  # since it was asked for
                await self._give_back(deliveries)
            elif deliveries:
                return deliveries
            elif not self._wait:
                await self._clock.sleep(_IDLE)

    async def _receive(self, source: str, limit: int) -> list[Delivery]:
        """What may be handed out. What waits for longer than SQS can hold it back is sent to wait on."""
        found = await self._receiver.wave(source, limit, self._wait)
        soon = self._clock.now() + _EARLY
        early = [
            Settlement(delivery, Release(read.not_before - self._clock.now()))
            for delivery, read in found
            if read.not_before is not None and read.not_before > soon
        ]
        if early:
            await self._settler.settle(early)
        waiting = {id(item.delivery) for item in early}
        return [delivery for delivery, _ in found if id(delivery) not in waiting]

    async def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await self._settler.settle([Settlement(delivery, Release()) for delivery in deliveries])

    async def set_paused(self, sources: Collection[str]) -> None:
        for source in sources:
            self._pauses.setdefault(source, asyncio.Event())
        for source in [source for source in self._pauses if source not in sources]:
            self._pauses.pop(source).set()

    # -- what was received, and sent -----------------------------------------------------------------------------

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return await self._settler.extend(deliveries)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        return await self._settler.settle(settlements)

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        return await self._sender.send(messages)

    # -- how it stands -------------------------------------------------------------------------------------------

    async def depths(self) -> dict[str, Depth]:
        """Approximate, and some seconds late, as SQS counts."""
        requests = asyncio.Semaphore(_LOOKS)

        async def depth(url: str) -> Depth | None:
            async with requests:
                return await self._depth(url)

        urls = await self._queues.every()
        found = await asyncio.gather(*map(depth, urls.values()))
        return {source: depth for source, depth in zip(urls, found, strict=True) if depth is not None}

    async def _depth(self, url: str) -> Depth | None:
        """None, if it was deleted meanwhile, or is not ours to look at."""
        try:
            answer = await self._api.call("GetQueueAttributes", QueueUrl=url, AttributeNames=_DEPTHS)
        except Refusal as error:
            if error.is_missing or error.is_denied:
                return None
            raise
        said = answer.get("Attributes") or {}
        ready, delayed, hidden = (int(said.get(name) or 0) for name in _DEPTHS)
        waiting = min(hidden, self._settler.waiting(url))
        return Depth(ready, delayed + waiting, hidden - waiting)

    @property
    def holder(self) -> str:
        return ""  # SQS tells nobody who has what

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        queue = await self._queues.get(source, make=False)
        depth = await self._depth(queue.url)
        if depth is None:
            return Listing(notes=(_UNSEEN, f"there is no queue {queue.name}, or we may not look at it"))
        counts = f"about {depth.ready:,} ready, {depth.delayed:,} delayed, {depth.leased:,} in hand in {queue.name}"
        return Listing(notes=(_UNSEEN, counts))

    async def has_source(self, source: str) -> bool:
        return await self._queues.has(source)

    async def advice(self, demands: Sequence[Demand]) -> Sequence[Advice]:
        return await Examiner(self._api, self._queues, self.options).advice(demands)

    async def dead_letter_sources(self, queue: str) -> tuple[str, ...]:
        """The sources whose redrive policy names that queue, or its name where it is none of ours."""
        found = await self._queues.get(queue, make=False)
        try:
            answer = await self._api.call("ListDeadLetterSourceQueues", QueueUrl=found.url)
        except Refusal as error:
            if error.is_denied:
                return ()
            raise
        names = [url.rpartition("/")[2] for url in answer.get("queueUrls") or answer.get("QueueUrls") or ()]
        return tuple(sorted(self.source_of(name) for name in names))

    def source_of(self, queue: str) -> str:
        """The source that a queue of SQS is to us."""
        return self._queues.source_of(queue) or queue

    async def check(self) -> None:
        try:
            await self._api.call("ListQueues", MaxResults=1)
        except Refusal as error:
            if not error.is_denied:  # it knows us: that we may not list queues does not keep us from using some
                raise

    async def aclose(self) -> None:
        await self._api.aclose()


class SqsFifoTransport(SqsTransport):
    """FIFO queues: the key of a message is its group, and a retry holds up its group."""

    features = Features(
        durable=True,
        native_delay=True,
        counts_attempts=True,
        keeps_history=False,
        ordered_by="key",
        idempotent_send=False,
        shared=True,
        urgent_first=False,
        sets_aside=False,
    )

    def keep_order(self, source: str, holds: Holds) -> None:
        """Nothing is to be told: SQS itself hands out nothing of a group of which something is in hand or waits."""

    def is_ours(self, delivery: Delivery) -> bool:
        return lease_of(delivery).is_ours(self._clock.elapsed())


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> SqsTransport:
    """`sqs://?region=eu-central-1`, `sqs://localhost:9324?tls=false`."""
    options = options_of(url)
    return (SqsFifoTransport if options.fifo else SqsTransport)(options, clock=clock, lease=lease)
