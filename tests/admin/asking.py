"""The API without a socket: its lifespan, and clients that ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
from litestar import Litestar


@asynccontextmanager
async def running(api: Litestar) -> AsyncIterator[None]:
    """Its lifespan, in one task as a server has it; a fixture begins and ends in two."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with api.lifespan():
            begun.set()
            await over.wait()

    living = asyncio.create_task(live())
    await begun.wait()
    try:
        yield
    finally:
        over.set()
        await living


def asking(api: Litestar, token: str | None = None, host: str = "redrive.test") -> httpx.AsyncClient:
    """A client of it, with that token or without any."""
    transport = httpx.ASGITransport(cast(Any, api))  # Litestar types its messages one by one, httpx as dictionaries
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers)
