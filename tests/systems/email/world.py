"""The e-mail system in a test: a worker beside it, and what its DLQ holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from msgspec.structs import replace
from redis.asyncio import Redis as Client

from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import State
from redrive.systems.email import EmailGateway
from redrive.systems.email.settings import EmailSettings
from redrive.worker import Worker

QUICK = timedelta(milliseconds=20)


def with_email(settings: Settings, **changes: Any) -> Settings:
    return settings.having(replace(settings.of(EmailSettings), **changes))


@asynccontextmanager
async def running(settings: Settings, *, upkeep: bool = False, **options: Any) -> AsyncIterator[EmailGateway]:
    async with EmailGateway(settings, **options) as gateway:
        worker = Worker(gateway.app, upkeep=upkeep)
        work = asyncio.create_task(worker.run())
        try:
            yield gateway
        finally:
            worker.stop()
            await work


async def entries(client: Client) -> list[dict[str, Any]]:
    found: Any = await client.zrange("email:send:dlq", 0, -1)
    return [json.loads(one) for one in found]


def dlq_has(client: Client, count: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return bool(await client.zcard("email:send:dlq") == count)

    return holds


async def is_drained(gateway: EmailGateway) -> bool:
    return "email:send" not in await gateway.app.transport().depths()


async def has_states(gateway: EmailGateway, **wanted: int) -> bool:
    letters = gateway.app.store.letters
    return all([await letters.count(Query(states=(State(name),))) == count for name, count in wanted.items()])
