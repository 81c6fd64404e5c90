"""What one source sends us: taken ahead, handed out under a lease, acknowledged in order.

RabbitMQ knows no lease: an unacknowledged message is ours until the connection ends. So the lease is kept here, and
what is neither settled nor extended in time is given back, as every other transport does.

What was delivered before, and settled by nobody, may have taken its worker down. But RabbitMQ says so of everything
that a dead worker had taken, begun or not; and after a crash of its own, of every message of a classic queue. So the
first time means nothing. After the second, or when its lease ended in a worker's hands, it is handed out with nothing
taken ahead (`is_narrow`); if it comes again after that, it was in a worker's hands, and that is counted as an attempt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

from msgspec import Struct
from pika import BasicProperties
from pika.spec import Basic

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
Overdue = tuple[int, Arrived]  # tag, and what came under it
Adopt: TypeAlias = "Callable[[Subscription], Awaitable[None]]"
GiveBack: TypeAlias = "Callable[[Subscription, Sequence[Overdue]], Awaitable[None]]"
SUSPICIOUS = 2  # times that nobody settled it
_CALM = 20  # messages in a row that are not suspicious: times are as usual again


def is_suspicious(came: Arrived) -> bool:
    """It is handed out with nothing taken ahead."""
    return came.unsettled >= SUSPICIOUS


class Subscription:
    """One consumer on one channel. When the channel is gone, all of it is: messages come back by themselves."""

    def __init__(self, source: str, channel: Channel, clock: Clock, lease: timedelta, give_back: GiveBack) -> None:
        self.source = source
        self.closed: TransportUnavailable | None = None
        self._channel = channel
        self._clock = clock
        self._lease = lease.total_seconds()
        self._give_back = give_back
        self._buffer: deque[Taken] = deque()
        self._suspects: deque[Taken] = deque()  # delivered before, and settled by nobody
        self._leases: dict[int, tuple[float, Arrived]] = {}  # until when, and what was handed out
        self._first = 1  # of a channel's tags, which count up by one: those below are settled
        self._settled: set[int] = set()  # and so are these, above it
        self._arrived = asyncio.Event()
        self._tag = ""
        self._sweeper: asyncio.Task[None] | None = None
        self.is_narrow = False
        self._is_asking = False  # for one message, in narrow times
        self._calm = 0  # messages in a row that are not suspicious

    async def begin(self, prefetch: int) -> None:
        channel = self._channel
        channel.on_close.append(self._ended)
        channel.raw.add_on_cancel_callback(self._cancelled)
        channel.raw.add_callback(self._nothing_there, [Basic.GetEmpty], one_shot=False)
        await channel.call(channel.raw.basic_qos, prefetch_count=prefetch)
        await self._consume()
        self._sweeper = asyncio.create_task(self._sweep())

    async def _consume(self) -> None:
        channel = self._channel
        frame = await channel.call(channel.raw.basic_consume, self.source, self._came)
        self._tag = frame.method.consumer_tag

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def receive(self, limit: int, adopt: Adopt) -> list[Delivery]:
        """What was taken ahead; none, if the next of it is suspicious, so that times have to get narrow. What comes as
        delivered before is first adopted, so that somebody counts."""
        while True:
            if self._suspects:
                await adopt(self)
            if self.closed is not None:
                raise self.closed
            if self._buffer:
                return self._hand_out(limit)
            self._arrived.clear()
            await self._arrived.wait()

    async def receive_alone(self, adopt: Adopt) -> list[Delivery]:
        """One, with nothing taken ahead; none, if times are calm again."""
        if self._suspects:
            await adopt(self)
        if self.closed is not None:
            raise self.closed
        if not self._buffer and self._calm < _CALM:
            await self._ask()
        if not self._buffer and not self._suspects:
            await self._widen()
        return self._hand_out(1, alone=True)

    async def _ask(self) -> None:
        """For one message. Whoever is cancelled leaves the question to the next."""
        if not self._is_asking:
            self._is_asking = True
            self._channel.tell(self._channel.raw.basic_get, self.source, self._came)
        while self._is_asking and self.closed is None:
            self._arrived.clear()
            await self._arrived.wait()

    async def _widen(self) -> None:
        await self._consume()
        self.is_narrow, self._calm = False, 0

    async def narrow(self) -> list[Taken]:
        """Take nothing ahead any more; what is to be given back, all but the next."""
        await self.stop()
        self.is_narrow = True
        following = list(self._buffer)[1:]
        while len(self._buffer) > 1:
            self._buffer.pop()
        return following

    def _hand_out(self, limit: int, *, alone: bool = False) -> list[Delivery]:
        until, buffer = self._clock.elapsed() + self._lease, self._buffer
        out: list[Delivery] = []
        while buffer and len(out) < limit:
            tag = buffer[0][0]
            came = self.read(buffer[0])
            if is_suspicious(came) and not alone:
                break
            self._calm = 0 if is_suspicious(came) else self._calm + 1
            buffer.popleft()
            self._leases[tag] = until, came
            times, held = came.unsettled, Held(self, tag, came)
            out.append(Delivery(came.message, held, came.failures, times > 0, blameless=0 < times < SUSPICIOUS))
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

    def keep(self, taken: Sequence[Taken]) -> None:
        """They could not be given back: they are handed out one by one."""
        if self.closed is None:
            self._buffer.extend(taken)

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
        return len(self._leases)

    # -- settling ----------------------------------------------------------------------------------------------------

    def holds(self, tag: int) -> bool:
        return self.closed is None and tag in self._leases

    def extend(self, tag: int) -> bool:
        if not self.holds(tag):
            return False
        self._leases[tag] = self._clock.elapsed() + self._lease, self._leases[tag][1]
        return True

    def ack(self, tags: Collection[int]) -> None:
        """One frame for everything that is finished without a gap, one for each of the others.

        The last of the first must be one of these: RabbitMQ takes an ack of what was settled before for a mistake.
        """
        if self.closed is not None:
            return
        first, settled, leases = self._first, self._settled, self._leases
        # The lease of some may have ended while a copy was made.
        mine = [tag for tag in tags if tag >= first and tag not in settled]
        settled.update(mine)
        for tag in mine:
            leases.pop(tag, None)
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
        self._leases.pop(tag, None)
        self._settled.add(tag)
        self._pass_settled()
        self._channel.tell(self._channel.raw.basic_reject, tag, requeue=requeue)

    async def stop(self) -> None:
        """Take nothing more."""
        if self.closed is None and self._tag:
            tag, self._tag = self._tag, ""
            await self._channel.call(self._cancel, tag)

    def _cancel(self, tag: str, callback: Callable[[Any], None]) -> None:
        """pika would reject what is still on its way, and the broker would call that delivered before. There is no
        public way to tell it, hence its cap below 2."""
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
        self._is_asking = False
        place = self._suspects if method.redelivered else self._buffer
        place.append((tag, origin, properties, body))
        self._arrived.set()

    def _nothing_there(self, _: Any) -> None:
        self._is_asking = False
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
            self._leases.clear()
            self._arrived.set()

    async def _sweep(self) -> None:
        """What is held beyond its lease goes back."""
        while self.closed is None:
            nearest = min((until for until, _ in self._leases.values()), default=self._clock.elapsed() + self._lease)
            await self._clock.sleep(max(nearest - self._clock.elapsed(), self._lease / 100))
            if overdue := self._overdue():
                with suppress(TransportUnavailable):  # the connection ends: then they go back by themselves
                    await self._give_back(self, overdue)

    def _overdue(self) -> list[Overdue]:
        """From now on nobody else can settle them."""
        now = self._clock.elapsed()
        found = [(tag, came) for tag, (until, came) in self._leases.items() if until <= now]
        for tag, _ in found:
            del self._leases[tag]
        return found
