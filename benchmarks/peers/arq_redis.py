"""arq: 50 jobs at once, a look into the queue every 10 ms, no results kept, 50 added at once since it has no bulk add.

It wants an older redis-py than ours, so it has an environment of its own (requirements-bench-arq.txt). It keeps nothing
of a job that failed for good.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import needed
from benchmarks.redis_child import ATTEMPTS, CONCURRENCY, Failed, Handle, Order, Task, gathered, main

_POLL_SECONDS = 0.01


class Arq:
    def __init__(self, task: Task) -> None:
        logging.getLogger("arq").setLevel(logging.CRITICAL)
        self._connections: Any = needed("arq.connections")
        self._redis = self._connections.RedisSettings.from_dsn(task.url)
        self._pool: Any = None

    async def add(self, queue: str, orders: Sequence[Order]) -> None:
        self._pool = self._pool or await self._connections.create_pool(self._redis)
        await gathered(orders, lambda order: self._pool.enqueue_job("job", order, _queue_name=queue))

    async def work(self, queue: str, handle: Handle) -> None:
        arq = needed("arq.worker")

        async def job(context: object, order: Order) -> None:
            try:
                handle(order)
            except Failed as error:
                raise arq.Retry(defer=0) from error

        worker = arq.Worker(
            [arq.func(job, name="job")],
            queue_name=queue,
            redis_settings=self._redis,
            handle_signals=False,
            max_jobs=CONCURRENCY,
            poll_delay=_POLL_SECONDS,
            keep_result=0,
            max_tries=ATTEMPTS,
            log_results=False,
        )
        try:
            await worker.async_run()
        finally:
            await worker.close()


def unsettled(redis: Any) -> int:
    """How many jobs wait, run or are to be retried."""
    return int(redis.zcard("jobs"))


if __name__ == "__main__":
    main(Arq)
