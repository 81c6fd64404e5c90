"""A driver that swallows a cancellation, as `asyncio.wait_for` of Python 3.11 can, keeps no worker from its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.stores.memory import MemoryStore
from redrive.transports.memory import MemoryTransport
from redrive.worker import Worker


class Swallows:
    """A call that ends when it is cancelled, as if it had been answered just then; the calls after it are answered."""

    def __init__(self, answer: Any) -> None:
        self.begun = asyncio.Event()
        self._answer = answer

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.begun.is_set():
            return self._answer
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return self._answer


async def test_a_worker_ends_though_its_heartbeat_swallows_the_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    store, swallows = MemoryStore(), Swallows(True)
    monkeypatch.setattr(store.documents, "put", swallows)
    await _ends(Redrive(store=store, settings=Settings(transports={"default": "memory://"})), swallows)


async def test_a_worker_ends_though_the_look_at_pauses_swallows_the_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swallows = Swallows(())
    monkeypatch.setattr(MemoryTransport, "pauses", lambda transport: swallows())
    await _ends(Redrive(settings=Settings(store="memory://", transports={"default": "memory://"})), swallows)


async def _ends(app: Redrive, swallows: Swallows) -> None:
    @app.handler("orders")
    async def handle(order: dict[str, int]) -> None: ...

    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await asyncio.wait_for(swallows.begun.wait(), 60)
        worker.stop()
        await asyncio.wait_for(running, 60)
