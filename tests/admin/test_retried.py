"""A message that fails, is tried again and succeeds never becomes a letter; what happened over time tells of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from redrive import Policy, Redrive, immediate
from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Settings
from redrive.service import Service
from redrive.worker import Worker
from tests.admin.asking import asking, running


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.servers)])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a transport."""
    if request.param == "redis":
        return str(request.getfixturevalue("redis_server").url)
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'queue.db'}"


async def test_a_message_that_fails_once_shows_up_as_retried(transport: str, tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path / 'store.db'}", transports={"default": transport}, worker="w")
    app, attempts, handled = Redrive(settings=settings), list[Any](), asyncio.Event()

    @app.handler("orders.retried", policy=Policy(attempts=3, backoff=immediate()))
    async def charge(order: dict[str, Any]) -> None:
        attempts.append(order)
        if len(attempts) == 1:
            raise ConnectionError("the gateway is away")
        handled.set()

    async with app:
        await app.send("orders.retried", {"id": 1}, id="m1")
        async with asyncio.timeout(30):
            worker = Worker(app, upkeep=False)
            work = asyncio.create_task(worker.run())
            await handled.wait()
            worker.stop()
            await work
        tokens = Tokens(app.store.documents, app.clock)
        _, text = await tokens.create("viewer", Role.VIEWER)
        api = create_api(Service(app), tokens=tokens)
        async with running(api), asking(api, text) as viewer:
            found = (await viewer.get("/api/series", params={"last": "1h", "by": "outcome"})).json()
            by = {"last": "1h", "by": "category", "outcome": "retried"}
            by_category = (await viewer.get("/api/series", params=by)).json()
    assert len(attempts) == 2
    assert {line["name"]: line["total"] for line in found["lines"]} == {"buried": 0, "retried": 1, "resolved": 0}
    assert [(line["name"], line["total"]) for line in by_category["lines"]] == [("network", 1)]
