"""dramatiq on Redis: 8 threads, 200 fetched ahead, no middleware but its retries (after a millisecond).

It has no bulk add, so 8 threads add. What failed for good is kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.peers import needed
from benchmarks.redis_child import ATTEMPTS, Handle, Order, Task, main

_THREADS = 8


class Dramatiq:
    def __init__(self, task: Task) -> None:
        logging.getLogger("dramatiq").setLevel(logging.CRITICAL)
        os.environ["dramatiq_queue_prefetch"] = "200"  # noqa: SIM112 (its spelling)
        self._package: Any = needed("dramatiq")
        retries = needed("dramatiq.middleware").Retries(max_retries=ATTEMPTS - 1, min_backoff=1, max_backoff=1)
        self._broker: Any = needed("dramatiq.brokers.redis").RedisBroker(url=task.url, middleware=[retries])
        self._handle: Handle = lambda order: None
        self._actors = {queue: self._actor(queue) for queue in ("warm", "jobs")}

    async def add(self, queue: str, orders: Sequence[Order]) -> None:
        if len(orders) == 1:
            self._actors[queue].send(orders[0])
            return
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._actors[queue].send, orders))

    async def work(self, queue: str, handle: Handle) -> None:
        self._handle = handle
        worker = self._package.Worker(self._broker, queues={queue}, worker_threads=_THREADS, worker_timeout=100)
        worker.start()
        try:
            await asyncio.Event().wait()
        finally:
            worker.stop()

    def _actor(self, queue: str) -> Any:
        def run(order: Order) -> None:
            self._handle(order)

        return self._package.actor(run, actor_name=queue, queue_name=queue, broker=self._broker)


def unsettled(redis: Any) -> int:
    """How many jobs wait, run or are to be retried."""
    return sum(int(redis.hlen(f"dramatiq:{queue}.msgs")) for queue in ("jobs", "jobs.DQ"))


if __name__ == "__main__":
    main(Dramatiq)
