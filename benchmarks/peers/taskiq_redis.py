"""taskiq on a Redis stream: 100 entries a read, 50 tasks at once, acked when done, no results; its simplest retries.

It has no bulk add, so 50 are added at once. It keeps nothing of a job that failed for good.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import needed
from benchmarks.redis_child import ATTEMPTS, CONCURRENCY, Handle, Order, Task, gathered, main


class Taskiq:
    def __init__(self, task: Task) -> None:
        logging.getLogger("taskiq").setLevel(logging.CRITICAL)
        self._url = task.url
        self._labels = {"retry_on_error": True} if task.failing else {}
        self._senders: dict[str, Any] = {}

    async def add(self, queue: str, orders: Sequence[Order]) -> None:
        if queue not in self._senders:
            broker, job = self._broker(queue, lambda order: None)
            await broker.startup()
            self._senders[queue] = job
        await gathered(orders, self._senders[queue].kiq)

    async def work(self, queue: str, handle: Handle) -> None:
        broker, _ = self._broker(queue, handle)
        await broker.startup()
        await needed("taskiq.api").run_receiver_task(broker, max_async_tasks=CONCURRENCY, validate_params=False)

    def _broker(self, queue: str, handle: Handle) -> tuple[Any, Any]:
        broker = (
            needed("taskiq_redis")
            .RedisStreamBroker(self._url, queue_name=queue, consumer_id="0", xread_count=100)
            .with_middlewares(needed("taskiq").SimpleRetryMiddleware(default_retry_count=ATTEMPTS))
        )

        async def run(order: dict) -> None:  # type: ignore[type-arg]
            handle(order)

        return broker, broker.register_task(run, task_name="job", **self._labels)


def unsettled(redis: Any) -> int:
    """How many jobs wait, run or are to be retried."""
    return sum(int(group["pending"]) + int(group["lag"] or 0) for group in redis.xinfo_groups("jobs"))


if __name__ == "__main__":
    main(Taskiq)
