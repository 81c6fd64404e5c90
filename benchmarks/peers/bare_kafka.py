"""confluent-kafka without anything around it: what the driver itself reaches, and what a careful hand makes of it."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, TopicPartition

_MOST = 500


def consume(servers: str, topic: str, group: str, total: int, *, waits: bool) -> float:
    """consume(500) and a commit of each batch, waited for or not; messages are only counted."""
    began = time.perf_counter()
    consumer = _consumer(servers, topic, group)
    left = total
    while left:
        messages = consumer.consume(_MOST, 1.0)
        left -= len(messages)
        _commit(consumer, messages, waits)
    consumer.close()
    return total / (time.perf_counter() - began)


async def gather_per_key(servers: str, topic: str, group: str, total: int, wait: float) -> float:
    """Up to 500 messages at once: those of a key one after the other, keys beside each other, then a commit."""
    began = time.perf_counter()
    consumer = _consumer(servers, topic, group)
    left = total
    while left:
        messages = await asyncio.to_thread(consumer.consume, _MOST, 0.05)
        by_key = defaultdict(list)
        for message in messages:
            by_key[message.key()].append(message)
        await asyncio.gather(*(_handle(some, wait) for some in by_key.values()))
        left -= len(messages)
        _commit(consumer, messages)
    consumer.close()
    return total / (time.perf_counter() - began)


async def one_by_one(servers: str, topic: str, group: str, total: int, wait: float) -> float:
    """What most people write first; so many of them, and then it is stopped."""
    consumer = _consumer(servers, topic, group)
    began, left = 0.0, total
    while left:
        messages = await asyncio.to_thread(consumer.consume, min(left, _MOST), 1.0)
        began = began or time.perf_counter()
        for message in messages:
            await _handle([message], wait)
        left -= len(messages)
        _commit(consumer, messages)
    consumer.close()
    return total / (time.perf_counter() - began)


async def _handle(messages: list[Any], wait: float) -> None:
    for message in messages:
        message.value()
        await asyncio.sleep(wait)


def _consumer(servers: str, topic: str, group: str) -> Any:
    consumer: Any = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def _commit(consumer: Any, messages: list[Any], waits: bool = False) -> None:
    following = {(one.topic(), one.partition()): one.offset() + 1 for one in messages}
    if following:
        offsets = [TopicPartition(*place, offset) for place, offset in following.items()]
        consumer.commit(offsets=offsets, asynchronous=not waits)
