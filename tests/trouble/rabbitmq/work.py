"""A worker on a queue of RabbitMQ, what it did, and how one dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from redrive import Policy, Redrive, immediate
from redrive.clock import SystemClock
from redrive.config.settings import Settings
from redrive.model import Message
from redrive.telemetry.events import Event
from redrive.testing.waiting import until
from redrive.transports.rabbitmq.transport import open_transport
from redrive.worker import Worker
from tests.servers.toxiproxy import Proxy

LEASE = timedelta(seconds=30)
PATIENCE = 120  # seconds: a machine that has much else to do is no failure


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
            if body.startswith(b"flaky"):
                raise ConnectionError("away")
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


class Victim:
    """A transport behind a proxy of its own, so that it can die as if its process had."""

    def __init__(self, proxy: Proxy, vhost: str) -> None:
        self._proxy = proxy
        url = f"amqp://guest:guest@{proxy.address}/{vhost}?delay=200ms"
        self.transport = open_transport(url, clock=SystemClock(), lease=LEASE)

    async def die(self) -> None:
        """What it said was heard, its connections are cut, and nothing more is said."""
        await self.transport.depths()  # an answer on the connection that the acks went over
        self._proxy.cut()
