"""Topics, a database and ticket ids of a test's own on real servers, with workers and DLQ consumers on top."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from msgspec.structs import replace
from pymongo import MongoClient
from redis import Redis as RedisClient

from redrive import constant
from redrive.config.settings import Alerts, Settings, Upkeep
from redrive.systems.tickets import DlqConsumer, TicketWorker
from redrive.systems.tickets.settings import TicketSettings
from redrive.testing.waiting import until
from tests.servers.kafka import Kafka
from tests.servers.mongodb import MongoDB
from tests.servers.redis import Redis
from tests.trouble.helpers import working
from tests.trouble.kafka import Topic

QUICK = timedelta(milliseconds=20)
_numbers = itertools.count(1)


class World:
    """`main` is the topic of tickets, `dead` that of dead ones."""

    def __init__(
        self,
        kafka: Kafka,
        redis: Redis,
        mongodb: MongoDB,
        *,
        make_dead: bool = True,
        most: int = 2 << 20,
        most_main: int = 8 << 20,
    ):
        self.name = f"tickets_{os.getpid()}_{next(_numbers)}"
        self.main = Topic(kafka, most=most_main)
        self.dead = Topic(kafka, make=make_dead, most=most)
        self.main.group = self.name
        self.dead.group = f"{self.name}-dlq"
        self.redis: Any = RedisClient.from_url(redis.url)
        self.mongo: MongoClient[dict[str, Any]] = MongoClient(mongodb.url)
        tickets = TicketSettings(
            kafka=f"kafka://{kafka.bootstrap}/?consumer.heartbeat.interval.ms=100",
            redis=redis.url,
            mongodb=f"{mongodb.url}{self.name}",
            topic=self.main.name,
            dlq_topic=self.dead.name,
            group=self.name,
            replicas=1,
        )
        self.settings = Settings(
            sections=(tickets,),
            lease=timedelta(seconds=6),
            upkeep=Upkeep(interval=QUICK),
            alerts=Alerts(interval=QUICK, grace=timedelta(seconds=1)),
        )

    def with_tickets(self, **changes: Any) -> World:
        self.settings = self.settings.having(replace(self.settings.of(TicketSettings), **changes))
        return self

    def id(self, number: int | str) -> str:
        """A ticket's, and nobody else's on these servers."""
        return f"{self.name}:{number}"

    def ticket(self, number: int | str, **fields: Any) -> bytes:
        return json.dumps({"ticket_id": self.id(number), "task_type": "BUILD", **fields}).encode()

    def send(self, *numbers: int | str, **fields: Any) -> None:
        self.main.produce(*[(self.id(number).encode(), self.ticket(number, **fields)) for number in numbers])

    def count_of(self, number: int | str) -> int | None:
        found = self.redis.get(f"ticket:retry_count:{self.id(number)}")
        return None if found is None else int(found)

    @property
    def said(self) -> dict[str, Any]:
        """The settings of its tickets, for another process."""
        own = self.settings.of(TicketSettings)
        return {name: getattr(own, name) for name in own.__struct_fields__}

    @property
    def documents(self) -> Any:
        return self.mongo[self.name]["execution_tickets_dlq"]

    async def until_dead(self, number: int) -> list[dict[str, Any]]:
        await until(lambda: self.documents.count_documents({}) >= number, what=f"{number} tickets are in MongoDB")
        return list(self.documents.find())

    def graves(self) -> list[Any]:
        return self.dead.records()

    @asynccontextmanager
    async def worker(self, handle: Callable[..., Any]) -> AsyncIterator[TicketWorker]:
        made = TicketWorker(handle, self.settings, backoff=constant("10ms"))
        async with made.app, working(made.app):
            yield made

    @asynccontextmanager
    async def consumer(self) -> AsyncIterator[DlqConsumer]:
        consumer = DlqConsumer(self.settings)
        running = asyncio.create_task(consumer.run())
        try:
            yield consumer
            assert not running.done(), "the consumer ended by itself"
        finally:
            consumer.stop()
            await asyncio.wait_for(running, 60)
            await consumer.aclose()

    async def collected(self) -> int:
        """Everything that lies on the DLQ topic now is in MongoDB."""
        consumer = DlqConsumer(self.settings)
        try:
            return await consumer.run(follow=False)
        finally:
            await consumer.aclose()

    def close(self) -> None:
        self.mongo.drop_database(self.name)
        self.mongo.close()
        for key in self.redis.scan_iter(f"ticket:retry_count:{self.name}:*"):
            self.redis.delete(key)
        self.redis.close()


async def failing(ticket: dict[str, Any]) -> None:
    raise TimeoutError(f"the engine does not answer for {ticket['ticket_id']}")
