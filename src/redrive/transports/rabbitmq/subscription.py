"""What one source sends us: taken ahead, handed out under a lease, acknowledged in order.

RabbitMQ knows no lease: an unacknowledged message is ours until the connection ends. So the lease is kept here, and
what is neither settled nor extended in time is given back, as every other transport does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import Struct
from pika import BasicProperties

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.transports.base import Delivery
from redrive.transports.rabbitmq.link import Channel
from redrive.transports.rabbitmq.wire import Arrived, arrived


class Held(Struct, frozen=True, gc=False):
    """The proof of a lease: which subscription's, and which message of it."""

    subscription: Subscription
    tag: int
    came: Arrived


Taken = tuple[int, str, BasicProperties, bytes]  # tag, origin, properties, body


class Subscription:
    """One consumer on one channel. When the channel is gone, all of it is: messages come back by themselves."""

    def __init__(self, source: str, channel: Channel, clock: Clock, lease: timedelta) -> None:
        self.source = source
        self.closed: TransportUnavailable | None = None
        self._channel = channel
        self._clock = clock
        self._lease = lease.total_seconds()
        self._buffer: deque[Taken] = deque()
        self._suspects: deque[Taken] = deque()  # delivered before, and settled by nobody
        self._deadlines: dict[int, float] = {}  # of what was handed out
        self._first = 1  # of a channel's tags, which count up by one: those below are settled
        self._settled: set[int] = set()  # and so are these, above it
        self._arrived = asyncio.Event()
        self._tag = ""
        self._sweeper: asyncio.Task[None] | None = None

    async def begin(self, prefetch: int) -> None:
        channel = self._channel
        channel.on_close.append(self._ended)
        channel.raw.add_on_cancel_callback(self._cancelled)
        await channel.call(channel.raw.basic_qos, prefetch_count=prefetch)
        frame = await channel.call(channel.raw.basic_consume, self.source, self._came)
        self._tag = frame.method.consumer_tag
        self._sweeper = asyncio.create_task(self._sweep())

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def receive(self, limit: int, adopt: Callable[[Subscription], Awaitable[None]]) -> list[Delivery]:
        """At least one. What was delivered before is first adopted, so that somebody counts."""
        while True:
            if self._suspects:
                await adopt(self)
            if self.closed is not None:
                raise self.closed
            if self._buffer:
                return self._hand_out(limit)
            self._arrived.clear()
            await self._arrived.wait()

    def _hand_out(self, limit: int) -> list[Delivery]:
        until, buffer = self._clock.elapsed() + self._lease, self._buffer
        out: list[Delivery] = []
        for _ in range(min(limit, len(buffer))):
            taken = buffer.popleft()
            tag = taken[0]
            came = self.read(taken)
            self._deadlines[tag] = until
            out.append(Delivery(came.message, Held(self, tag, came), came.failures, came.redelivered))
        return out

    def read(self, taken: Taken) -> Arrived:
        _, origin, properties, body = taken
        return arrived(self.source, origin, properties, body, self._clock)

    def suspects(self) -> list[Taken]:
        """Those that were delivered before; whoever takes them settles them."""
        found = list(self._suspects)
        self._suspects.clear()
        return found

    def take_back(self, suspects: Sequence[Taken]) -> None:
        """Nobody could settle them yet."""
        if self.closed is None:
            self._suspects.extendleft(reversed(suspects))

    def unread(self) -> list[Taken]:
        """What was taken ahead and handed to nobody."""
        found = [*self._suspects, *self._buffer]
        self._suspects.clear()
        self._buffer.clear()
        return found

    @property
    def waiting(self) -> int:
        return len(self._buffer) + len(self._suspects)

    @property
    def leased(self) -> int:
        return len(self._deadlines)

    # -- settling ----------------------------------------------------------------------------------------------------

    def holds(self, tag: int) -> bool:
        return self.closed is None and tag in self._deadlines

    def extend(self, tag: int) -> bool:
        if not self.holds(tag):
            return False
        self._deadlines[tag] = self._clock.elapsed() + self._lease
        return True

    def ack(self, tags: Collection[int]) -> None:
        """One frame for everything that is finished without a gap, one for each of the others.

        The last of the first must be one of these: RabbitMQ takes an ack of what was settled before for a mistake.
        """
        if self.closed is not None:
            return
        mine = [tag for tag in tags if self._is_open(tag)]  # the lease of some may have ended while a copy was made
        self._settled.update(mine)
        for tag in mine:
            self._deadlines.pop(tag, None)
        first = self._first
        self._pass_settled()
        last = max([tag for tag in mine if tag < self._first], default=0)
        channel = self._channel
        if last:
            channel.tell(channel.raw.basic_ack, last, multiple=last > first)
        for tag in mine:
            if tag > last:
                channel.tell(channel.raw.basic_ack, tag)

    def _is_open(self, tag: int) -> bool:
        return tag >= self._first and tag not in self._settled

    def _pass_settled(self) -> None:
        while self._first in self._settled:
            self._settled.discard(self._first)
            self._first += 1

    def reject(self, tag: int, *, requeue: bool) -> None:
        """Back to the head of the queue, or into the retry queue."""
        if self.closed is not None or not self._is_open(tag):
            return
        self._deadlines.pop(tag, None)
        self._settled.add(tag)
        self._pass_settled()
        self._channel.tell(self._channel.raw.basic_reject, tag, requeue=requeue)

    async def stop(self) -> None:
        """Take nothing more."""
        if self.closed is None and self._tag:
            tag, self._tag = self._tag, ""
            await self._channel.call(self._cancel, tag)

    def _cancel(self, tag: str, callback: Callable[[Any], None]) -> None:
        """pika would reject what is still on its way, and the broker would call that delivered before."""
        raw = self._channel.raw
        raw.basic_cancel(tag, callback)
        raw._cancelled.discard(tag)

    async def aclose(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._channel.close()

    # -- what happens to it ------------------------------------------------------------------------------------------

    def _came(self, _: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        tag = method.delivery_tag
        origin = f"{method.exchange}/{method.routing_key}" if method.exchange else ""
        place = self._suspects if method.redelivered else self._buffer
        place.append((tag, origin, properties, body))
        self._arrived.set()

    def _cancelled(self, _: Any) -> None:
        """The broker ended the consumer: its queue was deleted, or its node is gone."""
        self._tag = ""
        self._ended(TransportUnavailable(f"queue {self.source!r}", "it was deleted, or moved, under its consumer"))

    def _ended(self, reason: TransportUnavailable) -> None:
        if self.closed is None:
            self.closed = reason
            self._buffer.clear()
            self._suspects.clear()
            self._deadlines.clear()
            self._arrived.set()

    async def _sweep(self) -> None:
        """What is held beyond its lease goes back; the broker says of it that it was delivered before."""
        while self.closed is None:
            nearest = min(self._deadlines.values(), default=self._clock.elapsed() + self._lease)
            await self._clock.sleep(max(nearest - self._clock.elapsed(), self._lease / 100))
            now = self._clock.elapsed()
            for tag in [tag for tag, until in self._deadlines.items() if until <= now]:
                with suppress(TransportUnavailable):  # the connection ends: then they go back by themselves
                    self.reject(tag, requeue=True)
