"""bullmq for Python: addBulk of 500, concurrency 50, finished jobs removed, jobs that failed for good kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import needed
from benchmarks.redis_child import ATTEMPTS, CONCURRENCY, Handle, Order, Task, bulks, main


class BullMQ:
    def __init__(self, task: Task) -> None:
        self._package: Any = needed("bullmq")
        self._url = task.url
        self._options = {"removeOnComplete": True} | ({"attempts": ATTEMPTS} if task.failing else {})
        self._queues: dict[str, Any] = {}

    async def add(self, queue: str, orders: Sequence[Order]) -> None:
        if queue not in self._queues:
            self._queues[queue] = self._package.Queue(queue, {"connection": self._url})
        if len(orders) == 1:
            await self._queues[queue].add("job", orders[0], self._options)
            return
        for some in bulks(orders):
            jobs = [{"name": "job", "data": order, "opts": self._options} for order in some]
            await self._queues[queue].addBulk(jobs)

    async def work(self, queue: str, handle: Handle) -> None:
        async def process(job: Any, token: str) -> None:
            handle(job.data)

        options = {"connection": self._url, "concurrency": CONCURRENCY, "removeOnComplete": {"count": 0}}
        worker = self._package.Worker(queue, process, options)
        try:
            await asyncio.Event().wait()
        finally:
            await worker.close(True)


def unsettled(redis: Any) -> int:
    """How many jobs wait, run or are to be retried."""
    lists = [int(redis.llen(f"bull:jobs:{one}")) for one in ("wait", "active", "paused")]
    return sum(lists) + sum(int(redis.zcard(f"bull:jobs:{one}")) for one in ("delayed", "prioritized"))


if __name__ == "__main__":
    main(BullMQ)
