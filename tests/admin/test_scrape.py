"""A worker that answers Prometheus and probes, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.scrape import Scrape
from redrive.errors import UsageError
from redrive.telemetry.events import MessageBuried
from redrive.telemetry.metrics import Metrics
from tests.admin.conftest import Shop


@asynccontextmanager
async def scraped(
    shop: Shop, host: str = "127.0.0.1", metrics: Metrics | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    scrape = Scrape(shop.app, host, 0, metrics)
    serving = asyncio.create_task(scrape.run())
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{scrape.port}") as client:
        yield client
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert serving.cancelled()


async def test_it_counts_what_this_worker_did(shop: Shop) -> None:
    async with scraped(shop) as client:
        await shop.app.send("orders", {"id": 2})
        await shop.until(MessageBuried)
        text = (await client.get("/metrics")).text
        assert (await client.get("/healthz")).status_code == (await client.get("/readyz")).status_code == 200
        assert (await client.get("/api/letters")).status_code == 404
    assert 'redrive_letters_buried_total{category="permanent",reason="permanent",source="orders"} 1.0' in text


async def test_others_than_loopback_need_a_token(shop: Shop) -> None:
    _, token = await Tokens(shop.app.store.documents, shop.app.clock).create("prometheus", Role.VIEWER)
    async with scraped(shop, "0.0.0.0") as client:
        assert (await client.get("/metrics")).status_code == 401
        known = await client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert known.status_code == 200


async def test_a_probe_that_cannot_look_does_not_cost_the_scrape(shop: Shop) -> None:
    metrics = Metrics(shop.app.events)
    looked: list[str] = []

    async def away() -> None:
        looked.append("away")
        raise UsageError("not now")

    async def here() -> None:
        looked.append("here")

    metrics.probes += [away, here]
    async with scraped(shop, metrics=metrics) as client:
        assert (await client.get("/metrics")).status_code == 200
    assert looked == ["away", "here"]


async def test_a_port_in_use_is_known_at_once(shop: Shop) -> None:
    async with scraped(shop) as client:
        await client.get("/healthz")
        with pytest.raises(UsageError, match="is in use"):
            Scrape(shop.app, "127.0.0.1", client.base_url.port or 0)
