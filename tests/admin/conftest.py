"""A real SQLite app with letters in it, and its API behind a real ASGI client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar

from redrive import Permanent, Policy, Redrive, immediate
from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Settings, Upkeep
from redrive.service import Service
from redrive.telemetry.events import Event, MessageBuried
from redrive.worker import Worker
from tests.admin.asking import asking, running

SECRET = "postgres://shop:hunter2@db/shop"


class Shop:
    """One handler that fails until it is mended."""

    def __init__(self, file: Path) -> None:
        url = f"sqlite:///{file}"
        upkeep = Upkeep(interval=timedelta(milliseconds=10))
        self.app = Redrive(settings=Settings(store=url, transports={"default": url}, worker="w", upkeep=upkeep))
        self.broken = True
        self.handled: list[int] = []
        self.app.handler("orders", policy=Policy(attempts=2, backoff=immediate()))(self.charge)
        self.app.declare("emails")

    async def charge(self, order: dict[str, Any]) -> None:
        if self.broken and order["id"] % 2 == 0:
            raise Permanent(f"no connection to {SECRET}", code="503")
        if self.broken:
            raise ValueError(f"order {order['id']} has no <b>price</b>")
        self.handled.append(order["id"])

    async def until(self, kind: type[Event], count: int = 1) -> None:
        """Work until so many facts of that kind came."""
        seen, worker = 0, Worker(self.app, upkeep=False)

        def watch(event: Event) -> None:
            nonlocal seen
            seen += isinstance(event, kind)
            if seen == count:
                worker.stop()

        end = self.app.events.subscribe(watch)
        try:
            async with asyncio.timeout(60):
                await worker.run()
        finally:
            end()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path / "redrive.db")
    async with made.app:
        yield made


@pytest.fixture
def tokens(shop: Shop) -> Tokens:
    return Tokens(shop.app.store.documents, shop.app.clock)


@pytest.fixture
async def api(shop: Shop, tokens: Tokens) -> AsyncIterator[Litestar]:
    made = create_api(Service(shop.app), tokens=tokens)
    async with running(made):
        yield made


@pytest.fixture
async def buried(shop: Shop) -> list[str]:
    """Four letters in two groups; the ids of their messages."""
    ids = [await shop.app.send("orders", {"id": n}, id=f"m{n}", tenant="acme" if n < 2 else None) for n in range(4)]
    await shop.until(MessageBuried, 4)
    return ids


Client = Callable[[Role | str | None], Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def client(api: Litestar, tokens: Tokens) -> AsyncIterator[Client]:
    """A client with a token of that role, with that text for a token, or without any."""
    made: list[httpx.AsyncClient] = []

    async def as_(role: Role | str | None) -> httpx.AsyncClient:
        text = (await tokens.create(role, role))[1] if isinstance(role, Role) else role
        made.append(asking(api, text))
        return made[-1]

    yield as_
    for one in made:
        await one.aclose()
