"""Declares queues with their retry and dead-letter parts, once, or checks that they exist where `declare=no`."""

from __future__ import annotations

import asyncio

from redrive.errors import ConfigError
from redrive.transports.rabbitmq.link import CLASHES, NOT_FOUND, Channel, ChannelClosed, Link
from redrive.transports.rabbitmq.options import Options
from redrive.transports.rabbitmq.topology import Declared, Topology, declared, retry_queue, rungs


class Declaring:
    """The queues that this transport has declared, or found."""

    def __init__(self, link: Link, options: Options) -> None:
        self._link = link
        self._options = options
        self._lock = asyncio.Lock()
        self.known: dict[str, None] = {}
        self._seen: set[str] = set()  # there, whoever made them

    @property
    def sources(self) -> list[str]:
        """Every queue that was made, found or looked at."""
        return [*self.known, *(self._seen - self.known.keys())]

    def forget(self, source: str) -> None:
        """Declare it again when it is next needed: it may have been deleted."""
        self.known.pop(source, None)
        self._seen.discard(source)

    async def ensure(self, source: str) -> None:
        """Declare the queue with its retry and dead-letter parts, or check that it exists."""
        if source in self.known:
            return
        async with self._lock:
            if source in self.known:
                return
            wanted = declared(Topology((self._options.queue(source),)))
            channel = await self._link.channel()
            try:
                await (self._make(channel, wanted) if self._options.declare else self._look(channel, source))
            except ChannelClosed as closed:
                raise self._wrong(source, closed) from closed
            finally:
                await channel.close()
            self.known[source] = None

    async def look(self, source: str) -> None:
        """Check that the queue exists, however it was made."""
        if source in self.known or source in self._seen:
            return
        if not await is_there(self._link, source):
            raise ConfigError(
                f"queue {source!r} is not on the broker, and nobody makes it for what is sent back: make it"
            )
        self._seen.add(source)

    async def counts(self, source: str) -> tuple[int, int]:
        """How many are ready, and how many wait in the retry queues."""
        channel, ready = await self._link.channel(), None
        try:
            ready = await message_count(channel, source)
            if source not in self.known:
                return ready, 0
            return ready, sum([await message_count(channel, name) for name in self._waiting(source)])
        except ChannelClosed as closed:
            if closed.code != NOT_FOUND:
                raise
            if ready is not None and not self._options.declare:
                return ready, 0  # a queue of somebody else's, without our retry parts
            self.forget(source)
            return 0, 0
        finally:
            await channel.close()

    def _waiting(self, source: str) -> list[str]:
        return [retry_queue(source, delay) for delay in rungs(self._options.queue(source))]

    async def _make(self, channel: Channel, wanted: Declared) -> None:
        raw = channel.raw
        for exchange in wanted.exchanges:
            await channel.call(
                raw.exchange_declare, exchange.name, exchange.kind, durable=True, arguments=exchange.arguments
            )
        for queue in wanted.queues:
            await channel.call(raw.queue_declare, queue.name, durable=True, arguments=queue.arguments)
        for binding in wanted.bindings:
            await channel.call(raw.queue_bind, binding.queue, binding.exchange, binding.key)

    async def _look(self, channel: Channel, source: str) -> None:
        await channel.call(channel.raw.queue_declare, source, passive=True)

    def _wrong(self, source: str, closed: ChannelClosed) -> Exception:
        if closed.code == CLASHES:
            return ConfigError(
                f"queue {source!r}, or one of its retry and dead-letter parts, is declared otherwise on the broker: "
                f"{closed.why}. Make the URL agree with it (delay, queues), or say declare=no"
            )
        if closed.code == NOT_FOUND and not self._options.declare:
            return ConfigError(f"queue {source!r} is not on the broker, and declare=no: make it, or leave that out")
        return closed


async def message_count(channel: Channel, queue: str) -> int:
    """How many messages are ready in that queue."""
    frame = await channel.call(channel.raw.queue_declare, queue, passive=True)
    return int(frame.method.message_count)


async def is_there(link: Link, name: str, *, exchange: bool = False) -> bool:
    """Whether the broker has a queue, or an exchange, of that name."""
    channel = await link.channel()
    declare = channel.raw.exchange_declare if exchange else channel.raw.queue_declare
    try:
        await channel.call(declare, name, passive=True)
    except ChannelClosed as closed:
        if closed.code == NOT_FOUND:
            return False
        raise
    finally:
        await channel.close()
    return True
