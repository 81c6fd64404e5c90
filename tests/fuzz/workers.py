"""Hostile messages through a worker on each transport: each is handled or a letter, and what is behind them comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pika

from redrive import Policy, Redrive, immediate
from redrive.forensics.query import Query
from redrive.model import Message
from redrive.stores.paging import every_letter
from redrive.telemetry.events import MessageBuried
from redrive.testing.hostile import Hostile
from redrive.testing.waiting import until
from redrive.transports.base import SendStatus
from redrive.worker import Worker
from tests.fuzz.rows import Row
from tests.trouble.kafka import Topic, producer

GOOD = b'{"good": true}'
SHORT = 255  # bytes of a short string in AMQP
Send = Callable[[Redrive, Sequence[Hostile]], Awaitable[int]]
"""Puts hostile messages and a good one behind them into the queue; returns how many were taken."""


async def worker_stage(name: str, url: str, source: str, cases: Sequence[Hostile], send: Send) -> Row:
    """One worker takes all of them."""
    app = Redrive(transport=url, store="memory://")
    handled, buried = set[str](), set[str]()
    good = asyncio.Event()
    app.events.subscribe(lambda event: buried.add(event.message) if isinstance(event, MessageBuried) else None)

    @app.handler(source, policy=Policy(attempts=1, backoff=immediate()))
    async def handle(body: dict[str, Any], message: Message) -> None:
        handled.add(message.id)
        if "good" in body:
            good.set()

    async with app:
        sent = await send(app, cases)
        running = asyncio.create_task((worker := Worker(app, upkeep=False)).run())
        stops, why = await _watched(running, lambda: good.is_set() and len(handled | buried) >= sent, sent)
        worker.stop()
        await asyncio.wait([running], timeout=30)
        kept = {letter.message.id async for letter in every_letter(app.store.letters, Query())}
        return Row(f"worker on {name}", len(cases), stops or not good.is_set(), max(sent - len(handled | kept), 0), why)


async def _watched(running: asyncio.Task[None], is_done: Callable[[], bool], sent: int) -> tuple[int, tuple[str, ...]]:
    """How often it stopped by itself, and why."""
    with suppress(AssertionError):  # what is missing is counted
        await until(lambda: running.done() or is_done(), timeout=60 + sent / 50)
    error = running.exception() if running.done() else None
    return (1, (f"{type(error).__name__}: {error}"[:200],)) if error else (0, ())


async def by_transport(app: Redrive, cases: Sequence[Hostile], source: str = "orders") -> int:
    """Through the transport itself, which may refuse what it cannot carry."""
    now = app.clock.now()
    messages = [case.message(source, now) for case in cases]
    messages.append(Message("good", source, GOOD, now))
    taken = 0
    for start in range(0, len(messages), 200):
        answers = await app.transport().send(messages[start : start + 200])
        taken += sum(answer.status is SendStatus.ACCEPTED for answer in answers)
    return taken


def by_producer(topic: Topic) -> Send:
    """As a producer of Kafka that does not know us."""

    async def send(app: Redrive, cases: Sequence[Hostile]) -> int:
        for case in cases:
            producer(topic.servers).produce(topic.name, case.body, case.key, headers=list(case.headers))
            producer(topic.servers).poll(0)
        topic.produce((b"good", GOOD))
        return len(cases) + 1

    return send


def by_publisher(url: str, queue: str) -> Send:
    """As a publisher of AMQP that does not know us."""

    async def send(app: Redrive, cases: Sequence[Hostile]) -> int:
        made = await by_transport(app, (), queue)  # the queue, too
        await asyncio.to_thread(_publish, url, queue, cases)
        return len(cases) + made + 1

    return send


def _publish(url: str, queue: str, cases: Sequence[Hostile]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    for case in cases:
        channel.basic_publish("", queue, case.body, _properties(case))
    channel.basic_publish("", queue, GOOD, pika.BasicProperties(message_id="good too"))
    connection.close()


def _properties(case: Hostile) -> pika.BasicProperties:
    table = {name: value for name, value in case.headers if len(name.encode()) <= SHORT}
    id = case.id if len(case.id.encode()) <= SHORT else None
    return pika.BasicProperties(message_id=id, headers=table or None, delivery_mode=2)
