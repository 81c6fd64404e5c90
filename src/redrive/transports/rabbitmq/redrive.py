"""Messages in dead-letter queues: looks at them, and sends them back to their queue without losing one.

The copy is confirmed before the dead message is acknowledged, so a message is in at least one queue at every moment. A
process that dies between the two leaves it in both, once, and at most one batch of them; `x-redriven-id` is the same
for both, so that whoever handles them can drop the repeat.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from typing import Any
from uuid import uuid4

from msgspec import Struct
from pika.spec import Basic

from redrive.clock import Clock
from redrive.errors import ConfigError, TransportUnavailable, UsageError
from redrive.transports.rabbitmq.dead_letter_queues import is_about
from redrive.transports.rabbitmq.fields import Name, fields_in, text_of
from redrive.transports.rabbitmq.link import NOT_FOUND, Channel, ChannelClosed, Link
from redrive.transports.rabbitmq.options import Options
from redrive.transports.rabbitmq.properties import Properties
from redrive.transports.rabbitmq.publisher import NeverTaken, Outcomes, Parcel, Publisher
from redrive.transports.rabbitmq.topology import RETRY, dlq_queue, retry_exchange, source_of
from redrive.transports.rabbitmq.wire import OURS, origin_of, renewed_ours, their_fields

AT, BY, FROM, COUNT, ID = (f"x-redriven-{name}" for name in ("at", "by", "from", "count", "id"))
BATCH = 500
"""How many are under way at once: what can be in both queues, if the process dies."""
_STEPS = 5  # in which a batch is published and acknowledged, so that the broker never waits for us
_MOST_PEEKED = 1000
_QUIET = 2.0  # seconds without a message: somebody else took the rest
Taken = tuple[Any, Properties, bytes]  # method, properties, body


class DeadMessage(Struct, frozen=True):
    """A message of a dead-letter queue, as the queue has it."""

    message_id: str | None
    routing_key: str
    exchange: str
    redelivered: bool
    properties: dict[str, Any]
    headers: dict[str, Any]
    body: bytes


class Redriven(Struct, frozen=True):
    """What became of a re-drive."""

    queue: str
    found: int  # in the dead-letter queue when it began
    sent: int
    refused: int = 0  # stay there: the broker will never take them
    why: str = ""  # they were refused


class DeadMessages:
    """The messages in the dead-letter queues of a broker.

    batch   how many messages are under way at once
    """

    def __init__(self, options: Options, clock: Clock, *, batch: int = BATCH) -> None:
        self._batch = batch
        self._clock = clock
        self._link = Link(options)
        self._publisher = Publisher(Link(options), options.confirm_timeout)

    async def aclose(self) -> None:
        await self._link.aclose()
        await self._publisher.aclose()

    async def count(self, queue: str) -> int | None:
        """How many are in that queue now; None: there is no such queue."""
        channel = await self._link.channel()
        try:
            return await _count(channel, queue)
        except ConfigError:
            return None
        finally:
            await channel.close()

    async def peek(self, queue: str, limit: int = 20) -> list[DeadMessage]:
        """The first messages of that queue. They are taken and given back together, so their order stays as it was."""
        if not 1 <= limit <= _MOST_PEEKED:
            raise UsageError(f"limit={limit}: look at 1 to {_MOST_PEEKED:,} messages at once")
        channel = await self._link.channel()
        try:
            number = min(limit, await _count(channel, queue))
            found = [got for _ in range(number) if (got := await _get(channel, queue)) is not None]
            if channel.closed is not None:
                raise channel.closed
            return [_dead_message(source_of(queue), *got) for got in found]
        finally:
            await channel.close()  # what was not acknowledged goes back to where it was

    async def redrive(
        self, source: str, *, limit: int, by: str, progress: Callable[[int, int], None] | None = None
    ) -> Redriven:
        """Send at most so many dead messages of that queue back: into its retry queue, and so to it alone.

        What dies while this runs is left for the next time.
        """
        if limit < 1:
            raise UsageError(f"limit={limit}: re-drive at least one message")
        queue = dlq_queue(source)
        channel = await self._link.channel()
        try:
            found = await _count(channel, queue)
            wanted = min(limit, found)
            if not wanted:
                return Redriven(queue, found, 0)
            redriving = await self._run(channel, source, wanted, by, progress)
            return Redriven(queue, found, redriving.sent, redriving.refused, redriving.why)
        finally:
            await channel.close()

    async def _run(
        self, channel: Channel, source: str, wanted: int, by: str, progress: Callable[[int, int], None] | None
    ) -> _Redriving:
        taking = _Taking(channel, dlq_queue(source))
        await taking.begin(min(self._batch, wanted))  # what the broker holds as ours is all that it can repeat

        def again(taken: Taken) -> Parcel:
            _, properties, body = taken
            return _again(source, properties, body, by, self._clock.now())

        redriving = _Redriving(taking, self._publisher, again, wanted, progress, -(-self._batch // _STEPS))
        await redriving.run()
        return redriving


class _Redriving:
    """A re-drive under way: a batch is published in several steps, which are acknowledged in order."""

    def __init__(
        self,
        taking: _Taking,
        publisher: Publisher,
        again: Callable[[Taken], Parcel],
        wanted: int,
        progress: Callable[[int, int], None] | None,
        step: int,
    ) -> None:
        self._taking = taking
        self._publisher = publisher
        self._again = again
        self._wanted = wanted
        self._step = step
        self._progress = progress
        self.sent = self.refused = 0
        self.why = ""  # some were refused
        self._taken = 0
        self._error: TransportUnavailable | None = None
        self._under_way: deque[tuple[list[int], asyncio.Task[Outcomes]]] = deque()

    async def run(self) -> None:
        """Send them. Whatever ends it, batches under way are finished first. What the broker will never take stays
        where it is, and ends nothing."""
        try:
            while self._error is None and await self._begin():
                while self._is_due():
                    await self._finish()
        finally:
            while self._under_way:
                await self._finish()
        if self._error is not None:
            raise self._error

    async def _begin(self) -> bool:
        """Publish the next batch; whether there was one."""
        batch = await self._taking.some(min(self._step, self._wanted - self._taken))
        if batch:
            self._taken += len(batch)
            tags = [method.delivery_tag for method, _, _ in batch]
            outcomes = self._publisher.outcomes([self._again(taken) for taken in batch])
            self._under_way.append((tags, asyncio.create_task(outcomes)))
        return bool(batch)

    def _is_due(self) -> bool:
        return len(self._under_way) >= _STEPS or (bool(self._under_way) and self._under_way[0][1].done())

    async def _finish(self) -> None:
        """Acknowledge what is confirmed of the oldest batch."""
        tags, outcomes = self._under_way[0]
        await asyncio.wait([outcomes])  # and if we are cancelled meanwhile, it is not
        self._under_way.popleft()
        errors = outcomes.result()
        try:
            self._taking.ack([tag for tag, error in zip(tags, errors, strict=True) if error is None])
        except TransportUnavailable as error:
            self._error = self._error or error
            return
        refusals = [error for error in errors if isinstance(error, NeverTaken)]
        others = [error for error in errors if error is not None and not isinstance(error, NeverTaken)]
        self._error = self._error or next(iter(others), None)
        self.refused, self.why = self.refused + len(refusals), self.why or next((error.why for error in refusals), "")
        self.sent += errors.count(None)
        if self._progress is not None:
            self._progress(self.sent, self._wanted)


class _Taking:
    """Takes messages of a dead-letter queue, so many ahead."""

    def __init__(self, channel: Channel, queue: str) -> None:
        self._channel = channel
        self._queue = queue
        self._taken: deque[Taken] = deque()
        self._acked = 0  # every tag up to it
        self._came = asyncio.Event()
        self._ended: TransportUnavailable | None = None

    async def begin(self, ahead: int) -> None:
        raw = self._channel.raw
        self._channel.on_close.append(self._end)
        raw.add_on_cancel_callback(lambda _: self._end(TransportUnavailable(self._queue, "it was deleted")))
        await self._channel.call(raw.basic_qos, prefetch_count=ahead)
        await self._channel.call(raw.basic_consume, self._queue, self._take)

    async def some(self, most: int) -> list[Taken]:
        """The next messages, at most so many; none if no more come."""
        while len(self._taken) < most:
            if self._ended is not None:
                raise self._ended
            self._came.clear()
            try:
                async with asyncio.timeout(_QUIET if not self._taken else 0.05):
                    await self._came.wait()
            except TimeoutError:
                break
        return [self._taken.popleft() for _ in range(min(most, len(self._taken)))]

    def ack(self, tags: list[int]) -> None:
        """Acknowledge them: with one frame those that follow without a gap, with one for each the others."""
        for tag in tags:
            if tag == self._acked + 1:
                self._acked = tag
        if tags and self._acked >= tags[0]:
            self._channel.tell(self._channel.raw.basic_ack, self._acked, multiple=True)
        for tag in tags:
            if tag > self._acked:
                self._channel.tell(self._channel.raw.basic_ack, tag)

    def _take(self, _: Any, method: Any, properties: Properties, body: bytes) -> None:
        self._taken.append((method, properties, body))
        self._came.set()

    def _end(self, reason: TransportUnavailable) -> None:
        self._ended = reason
        self._came.set()


def _again(source: str, properties: Properties, body: bytes, by: str, at: datetime) -> Parcel:
    """The message as its sender made it: counts begin anew, and the headers say who sent it back."""
    known: dict[str, Any] = properties.headers or {}
    theirs = their_fields(fields_in(properties.raw))
    table = {name: field for name, field in theirs.items() if not is_about(_text(name))}
    count, queue, origin = known.get(COUNT), dlq_queue(source), origin_of(known, source)
    number = count + 1 if isinstance(count, int) and 0 <= count < 1 << 31 else 1
    if OURS in known or origin:
        table[OURS] = renewed_ours(known.get(OURS), origin)
    for name in (AT, BY, FROM, COUNT, ID):
        table.pop(name.encode(), None)  # of the last time
    table |= {AT: at.isoformat(), BY: by, FROM: queue, COUNT: number, ID: _id(queue, properties, body, number)}
    properties.headers = table
    properties.delivery_mode = 2
    properties.expiration = None  # a time to live that killed it once must not kill it again
    if properties.message_id is None:
        properties.message_id = f"redriven-{uuid4().hex}"  # so that what comes back unrouted can be told apart
    return Parcel(retry_exchange(source), RETRY, properties, body)


def _id(queue: str, properties: Properties, body: bytes, number: int) -> str:
    """The same each time this message is re-driven for that time. Two without an id cannot be told apart, and none
    of them may be taken for a repeat."""
    if properties.message_id is None:
        return uuid4().hex
    parts = (queue, properties.message_id, str(number))
    return blake2b("\0".join(parts).encode() + b"\0" + body, digest_size=16).hexdigest()


async def _count(channel: Channel, queue: str) -> int:
    try:
        frame = await channel.call(channel.raw.queue_declare, queue, passive=True)
    except ChannelClosed as closed:
        if closed.code == NOT_FOUND:
            raise ConfigError(f"there is no queue {queue!r} on the broker: make it, or correct its name") from closed
        raise
    return int(frame.method.message_count)


async def _get(channel: Channel, queue: str) -> Taken | None:
    got: asyncio.Future[Taken | None] = asyncio.get_running_loop().create_future()

    def answer(found: Taken | None) -> None:
        if not got.done():
            got.set_result(found)

    channel.on_close.append(lambda _: answer(None))
    channel.raw.add_callback(lambda _: answer(None), [Basic.GetEmpty])
    channel.tell(channel.raw.basic_get, queue, lambda _, method, properties, body: answer((method, properties, body)))
    return await got


def _text(name: Name) -> str:
    return text_of(name) if isinstance(name, bytes) else name


def _dead_message(source: str, method: Any, properties: Properties, body: bytes) -> DeadMessage:
    headers = dict(properties.headers or {})
    exchange, _, key = (origin_of(headers, source) or f"{method.exchange}/{method.routing_key}").partition("/")
    unsaid = ("headers", "raw")
    known = {name: value for name, value in vars(properties).items() if value is not None and name not in unsaid}
    return DeadMessage(properties.message_id, key, exchange, method.redelivered, known, headers, body)
