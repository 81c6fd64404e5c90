"""FastStream on aio-pika: confirmed publishing, a hundred at a time; a message at a time, acked when done."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from benchmarks.harness import in_loop
from benchmarks.peers import needed
from benchmarks.peers.faststream_run import first_to_last

_TOGETHER, _PREFETCH = 100, 200


def publish(url: str, queue: str, body: bytes, total: int) -> float:
    """Messages a second, until the last is confirmed."""
    return in_loop(_publish(url, queue, body, total))


def consume(url: str, queue: str, total: int) -> float:
    """Messages a second, from the first to the last. Connecting is left out, to its advantage."""
    return in_loop(_consume(url, queue, total))


def _broker(url: str) -> Any:
    rabbit = needed("faststream.rabbit")
    channel = rabbit.Channel(prefetch_count=_PREFETCH)
    return rabbit.RabbitBroker(url, default_channel=channel, logger=None, log_level=logging.CRITICAL)


async def _publish(url: str, queue: str, body: bytes, total: int) -> float:
    broker = _broker(url)
    await broker.start()
    began = time.perf_counter()
    for _ in range(0, total, _TOGETHER):
        await asyncio.gather(*(broker.publish(body, queue=queue, persist=True) for _ in range(_TOGETHER)))
    took = time.perf_counter() - began
    await broker.stop()
    return total / took


async def _consume(url: str, queue: str, total: int) -> float:
    broker = _broker(url)
    subscriber = broker.subscriber(needed("faststream.rabbit").RabbitQueue(queue, declare=False))
    return await first_to_last(broker, subscriber, total)
