"""A worker on a queue of RabbitMQ, what it did, and how one dies."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from redrive import Policy, Redrive, immediate
from redrive.config.settings import Settings
from redrive.model import Message
from redrive.telemetry.events import Event
from redrive.testing.waiting import until
from redrive.transports.rabbitmq.transport import RabbitTransport
from redrive.worker import Worker

LEASE = timedelta(seconds=30)


class Work:
    """A worker on a queue, and what it did. A handler ends when so many run `together`."""

    def __init__(self, url: str, *, attempts: int = 3, seconds: float = 0.0, together: int = 1) -> None:
        settings = Settings(lease=LEASE, batch=20, concurrency=5)
        self.app = Redrive(transport=url, store="memory://", settings=settings)
        self.done: Counter[str] = Counter()
        self.attempts: Counter[int] = Counter()
        self.events: list[Event] = []
        meeting = asyncio.Barrier(together)
        self.app.events.subscribe(self.events.append)
        policy = Policy(attempts=attempts, backoff=immediate())

        @self.app.handler("orders", policy=policy)
        async def handle(body: bytes, message: Message) -> None:
            await asyncio.sleep(seconds)
            await meeting.wait()
            if body == b"bad":
                raise ValueError("bad")
            self.done[message.id] += 1
            self.attempts[message.attempt] += 1

        self.worker = Worker(self.app, upkeep=False, grace=timedelta(seconds=10))
        self.task = asyncio.create_task(self.worker.run())

    async def until(self, done: Callable[[], bool], what: str) -> None:
        await until(done, what=what, timeout=90)

    async def end(self) -> None:
        self.worker.stop()
        await self.task
        await self.app.aclose()

    def saw(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.events)


async def die(victim: RabbitTransport) -> None:
    """As if its process had: what it said was heard, the sockets are shut, and nothing more is said."""
    for subscription in victim._subscriptions.values():
        channel = subscription._channel  # which hears in order: an answer comes after the acks
        await channel.call(channel.raw.queue_declare, subscription.source, passive=True)
    for connection in (victim._link._connection, victim._publisher._link._connection):
        if connection is not None:
            connection._transport._sock.shutdown(socket.SHUT_RDWR)
            await until(partial(getattr, connection, "is_closed"), what="the connection is lost")
