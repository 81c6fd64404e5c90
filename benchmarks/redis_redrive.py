"""Redrive on Redis, as a process that families/redis.py starts: the same parts as its peers play (redis_child.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from benchmarks.redis_child import ATTEMPTS, BULK, CONCURRENCY, Handle, Order, Task, bulks, main, number_of
from redrive import Policy, Redrive, immediate
from redrive.config.settings import Settings
from redrive.worker import Worker


class Ours:
    """Queue and letters in the same Redis. Who sends knows the handlers, as in an application of one module."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._sender = self._app({"warm": _nothing, "jobs": _nothing})

    async def add(self, queue: str, orders: Sequence[Order]) -> None:
        for some in bulks(orders):
            messages = [self._sender.message(queue, order, tenant=self._tenant(order)) for order in some]
            await self._sender.send_messages(messages)

    async def work(self, queue: str, handle: Handle) -> None:
        async with self._app({queue: handle}) as app:
            await Worker(app, upkeep=False).run()

    def _app(self, handlers: Mapping[str, Handle]) -> Redrive:
        url = self._task.url
        app = Redrive(transport=url, store=url, settings=replace(Settings(), batch=BULK))
        for queue, handle in handlers.items():
            self._register(app, queue, handle)
            app.context(app.handlers[queue])  # the transport has to know that the queue is fair before it adds to it
        return app

    def _register(self, app: Redrive, queue: str, handle: Handle) -> None:
        policy, fair = Policy(attempts=ATTEMPTS, backoff=immediate()), bool(self._task.tenants)

        @app.handler(queue, policy=policy, concurrency=CONCURRENCY, fair=fair)
        async def run(order: dict[str, Any]) -> None:
            handle(order)

    def _tenant(self, order: Order) -> str | None:
        return f"tenant-{number_of(order) % self._task.tenants}" if self._task.tenants else None


def _nothing(order: Order) -> None:
    return None


if __name__ == "__main__":
    main(Ours)
