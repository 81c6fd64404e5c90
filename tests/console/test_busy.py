"""A server that has no place for a costly question: the page asks again by itself. In Chromium."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from playwright.async_api import Browser, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.testing.waiting import until
from tests.admin.conftest import Shop
from tests.admin.test_costly import PLAN, Gate
from tests.console.conftest import at, page_of

pytestmark = pytest.mark.servers


async def test_a_page_that_finds_no_place_asks_again_by_itself(
    browser: Browser, server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    page = await page_of(browser, server, shop, Role.VIEWER, "/groups")
    await expect(page.locator("#live")).to_have_text("live")
    token = await page.evaluate("sessionStorage.getItem('redrive-token')")
    async with httpx.AsyncClient(base_url=server.address, headers={"Authorization": f"Bearer {token}"}) as http:
        asked = [asyncio.create_task(http.post("/api/replays/plan", json=PLAN, timeout=None)) for _ in range(8)]
        await until(lambda: gate.inside == 8, what="every place is taken")
        async with page.expect_response(lambda answer: answer.status == 429):
            await page.goto(at(server, "/letters?text=m1"))
        gate.open.set()
        await expect(page.locator("main tbody tr")).to_have_count(1)
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
    await expect(page.locator(".trouble")).to_have_count(0)
    await page.close()
