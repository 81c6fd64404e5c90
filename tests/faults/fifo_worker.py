"""A worker on a FIFO queue that writes down what it has handled: `python -m tests.faults.fifo_worker URL FILE`."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta

from msgspec.structs import replace

from redrive import Message, Policy, Redrive, constant
from redrive.config.settings import Settings
from redrive.worker import Worker

LEASE = timedelta(seconds=3)
SOURCE = "orders"


async def work(url: str, file: str) -> None:
    """What is handled is a line, written in one piece before the message is acknowledged. One in seven fails once."""
    settings = replace(Settings(), lease=LEASE, concurrency=8)
    app = Redrive(transport=url, store="memory://", settings=settings)

    @app.handler(SOURCE, policy=Policy(attempts=50, backoff=constant("1s")))
    async def handle(body: bytes, message: Message) -> None:
        await asyncio.sleep(0.003)
        if int(body) % 7 == 3 and message.attempt == 1:
            raise ConnectionError("not yet")
        assert message.key is not None
        os.write(log, b"%s %s\n" % (message.key, body))

    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with app:
        await Worker(app, upkeep=False).run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
