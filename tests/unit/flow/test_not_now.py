"""A handler that cannot begin now gives its message back, and no attempt is counted."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive import Policy, Redrive
from redrive.errors import NotNow
from redrive.model import Message
from redrive.testing.waiting import until
from redrive.worker import Worker


async def test_no_attempt_is_counted() -> None:
    app = Redrive(store="memory://", transport="memory://")
    seen: list[int] = []

    @app.handler("orders", policy=Policy(attempts=2))
    async def handle(body: bytes, message: Message) -> None:
        seen.append(message.attempt)
        if len(seen) < 10:
            raise NotNow("the printer is warming up", pause=timedelta(milliseconds=1))

    async with app:
        await app.send("orders", b"x")
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(seen) == 10, what="it came again and again")
        worker.stop()
        await running
        assert await app.store.letters.tallies() == []
    assert set(seen) == {1}
