"""A subscription: what one source sends us, handed out under leases, acknowledged in order.

RabbitMQ knows no lease: an unacknowledged message is ours until the connection ends. So the lease is kept here, and
what is neither settled nor extended in time is given back, as every other transport does. What it means that a message
was delivered before, and how many are prefetched, is decided in redelivery.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct
from pika.spec import Basic

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.transports.base import Delivery
from redrive.transports.rabbitmq.inbox import Inbox
from redrive.transports.rabbitmq.link import Channel
from redrive.transports.rabbitmq.pika_internals import cancel_consumer
from redrive.transports.rabbitmq.properties import Properties
from redrive.transports.rabbitmq.redelivery import Redelivery
from redrive.transports.rabbitmq.tags import Tags
from redrive.transports.rabbitmq.wire import Arrived, safely_arrived


class Taken(Struct, frozen=True, gc=False):
    """A message that a subscription has, by its delivery tag. It is also the proof of a lease on it.

    The garbage collector does not follow it (`gc=False`): whoever keeps it for a subscription drops it when that ends.
    """

    subscription: Subscription
    tag: int
    came: Arrived
    state: Redelivery
    uncountable: str = ""  # why no copy can say that it came back

    def requeue(self, pause: timedelta) -> None:
        """Give it back as it is, when the pause is over: until then it stays in our hands."""
        self.subscription.requeue(self.tag, pause)


Count: TypeAlias = "Callable[[Subscription], Awaitable[None]]"
Expire: TypeAlias = "Callable[[Subscription, Sequence[Taken]], Awaitable[None]]"


class Subscription:
    """One consumer on one channel. When the channel is gone, all of it is: messages come back by themselves."""

    def __init__(
        self, source: str, channel: Channel, clock: Clock, lease: timedelta, expire: Expire, *, counts: bool = True
    ) -> None:
        self.source = source
        self._counts = counts  # redeliveries
        self.closed: TransportUnavailable | None = None
        self.inbox: Inbox[Taken] = Inbox()
        self._channel = channel
        self._clock = clock
        self._lease = lease.total_seconds()
        self._expire = expire
        self._leases: dict[int, tuple[float, Taken]] = {}  # until when, and what was handed out
        self._lost: set[int] = set()  # tags whose lease has ended
        self._tags = Tags()
        self._arrived = asyncio.Event()
        self._consumer = ""  # its tag; empty: there is none now
        self._sweeper: asyncio.Task[None] | None = None
        self._is_asking = False  # for one message
        self._is_paused = False  # nothing is handed out

    async def begin(self, prefetch: int) -> None:
        channel = self._channel
        channel.on_close.append(self._ended)
        channel.raw.add_on_cancel_callback(self._cancelled)
        channel.raw.add_callback(self._found_empty, [Basic.GetEmpty], one_shot=False)
        await channel.call(channel.raw.basic_qos, prefetch_count=prefetch)
        await self._consume()
        self._sweeper = asyncio.create_task(self._sweep())

    async def _consume(self) -> None:
        channel = self._channel
        frame = await channel.call(channel.raw.basic_consume, self.source, self._came)
        self._consumer = frame.method.consumer_tag

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def take(self, limit: int, count: Count) -> list[Taken]:
        """Lease the next messages; none if the inbox has to slow down first, has just sped up again, or is paused.

        count   counts the redeliveries in the inbox, before anything is handed out
        """
        if self.inbox.pace.is_one_by_one:
            return await self._receive_one(count)
        while True:
            await self._count(count)
            if self.inbox.has_ready or self._is_paused:
                return self._hand_out(limit)
            await self._next_arrival()

    async def _receive_one(self, count: Count) -> list[Taken]:
        inbox = self.inbox
        await self._count(count)
        if not inbox.has_ready and not inbox.pace.is_over and not self._is_paused:
            await self._ask()
        if not len(inbox) and not self._is_paused:
            await self._consume()
            inbox.speed_up()
        return self._hand_out(1)

    async def _count(self, count: Count) -> None:
        if self.inbox.has_uncounted:
            await count(self)
        if self.closed is not None:
            raise self.closed

    async def _ask(self) -> None:
        """Ask for one message, and wait for the answer. If that is cancelled, the next caller gets it."""
        if not self._is_asking:
            self._is_asking = True
            self._channel.tell(self._channel.raw.basic_get, self.source, self._came)
        while self._is_asking and self.closed is None and not self._is_paused:
            await self._next_arrival()

    async def _next_arrival(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    def _hand_out(self, limit: int) -> list[Taken]:
        if self._is_paused:
            return []
        until, leases = self._clock.elapsed() + self._lease, self._leases
        out = self.inbox.hand_out(limit)
        for taken in out:
            leases[taken.tag] = until, taken
        return out

    async def slow_down(self) -> list[Taken]:
        """Stop prefetching; returns what was prefetched behind the next message, and is to be given back."""
        await self.stop()
        return self.inbox.slow_down()

    async def pause(self) -> None:
        """Hand out nothing more, and take nothing more of the broker."""
        self._is_paused = True
        self._arrived.set()  # whoever waits here gets nothing
        await self.stop()

    async def resume(self) -> None:
        """Go on after `pause`."""
        if self.closed is None and not self._consumer and not self.inbox.pace.is_one_by_one:
            await self._consume()
        self._is_paused = False
        self._arrived.set()

    @property
    def leased(self) -> int:
        return len(self._leases)

    # -- settling ----------------------------------------------------------------------------------------------------

    def holds(self, tag: int) -> bool:
        return self.closed is None and tag in self._leases

    def has_lost(self, tag: int) -> bool:
        """Whether its lease ended before it was settled."""
        return self.closed is not None or tag in self._lost

    def extend(self, tag: int) -> bool:
        if not self.holds(tag):
            return False
        self._leases[tag] = self._clock.elapsed() + self._lease, self._leases[tag][1]
        return True

    def ack(self, tags: Collection[int]) -> None:
        """Acknowledge those that are open: the lease of some may have ended while a copy was made."""
        if self.closed is not None:
            return
        for tag in tags:
            self._leases.pop(tag, None)
        for tag, multiple in self._tags.acks(tags):
            self._channel.tell(self._channel.raw.basic_ack, tag, multiple=multiple)

    def reject(self, tag: int, *, requeue: bool) -> None:
        """Reject them: back to the head of the queue, or into the retry queue."""
        if self.closed is not None or not self._tags.is_open(tag):
            return
        self._leases.pop(tag, None)
        self._tags.settle(tag)
        self._channel.tell(self._channel.raw.basic_reject, tag, requeue=requeue)

    def requeue(self, tag: int, pause: timedelta) -> None:
        """Put it back to the head of the queue after that pause. Its lease has ended: nobody else settles it."""
        self._leases.pop(tag, None)
        loop = asyncio.get_running_loop()
        loop.call_later(pause.total_seconds(), partial(self._put_back, tag))

    def _put_back(self, tag: int) -> None:
        with suppress(TransportUnavailable):  # the connection ends: then it goes back by itself
            self.reject(tag, requeue=True)

    async def stop(self) -> None:
        """Take nothing more."""
        if self.closed is None and self._consumer:
            tag, self._consumer = self._consumer, ""
            await self._channel.call(partial(cancel_consumer, self._channel.raw), tag)

    async def aclose(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._channel.close()

    # -- what the broker tells ----------------------------------------------------------------------------------------

    def _came(self, _: Any, method: Any, properties: Properties, body: bytes) -> None:
        origin = f"{method.exchange}/{method.routing_key}" if method.exchange else ""
        came = safely_arrived(self.source, origin, properties, body, self._clock)
        self._is_asking = False
        state = came.state if self._counts else Redelivery.FRESH
        redelivered = method.redelivered and self._counts
        self.inbox.add(Taken(self, method.delivery_tag, came, state), redelivered=redelivered)
        self._arrived.set()

    def _found_empty(self, _: Any) -> None:
        self._is_asking = False
        self._arrived.set()

    def _cancelled(self, _: Any) -> None:
        """The broker ended the consumer: its queue was deleted, or its node is gone."""
        self._consumer = ""
        self._ended(TransportUnavailable(f"queue {self.source!r}", "it was deleted, or moved, under its consumer"))

    def _ended(self, reason: TransportUnavailable) -> None:
        if self.closed is None:
            self.closed = reason
            self.inbox.clear()
            self._leases.clear()
            self._arrived.set()

    # -- leases that expire --------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Give back what is held beyond its lease."""
        while self.closed is None:
            nearest = min((until for until, _ in self._leases.values()), default=self._clock.elapsed() + self._lease)
            await self._clock.sleep(max(nearest - self._clock.elapsed(), self._lease / 100))
            if expired := self._expired():
                with suppress(TransportUnavailable):  # the connection ends: then they go back by themselves
                    await self._expire(self, expired)

    def _expired(self) -> list[Taken]:
        """End their leases: from now on nobody else can settle them."""
        now = self._clock.elapsed()
        found = [taken for until, taken in self._leases.values() if until <= now]
        for taken in found:
            del self._leases[taken.tag]
            self._lost.add(taken.tag)
        return found


def delivery_of(taken: Taken) -> Delivery:
    """What is handed to a consumer."""
    came, state = taken.came, taken.state
    if state is Redelivery.FRESH and not came.unreadable:
        return Delivery(came.message, taken, came.failures)  # as almost all are
    return Delivery(
        came.message,
        taken,
        came.failures,
        redelivered=state is not Redelivery.FRESH,
        perhaps_untried=state.perhaps_untried,
        unreadable=came.unreadable,
        uncountable=taken.uncountable,
    )
