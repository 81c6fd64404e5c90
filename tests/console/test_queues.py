"""Pauses and workers on the page, in Chromium."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.service import Service
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, token_of

pytestmark = pytest.mark.servers


async def test_a_pause_is_shown_with_who_and_why_and_is_resumed(page: Page, shop: Shop) -> None:
    service = Service(shop.app)
    await service.pause("orders", actor=acting(f"ann {HOSTILE}"), why=f"db down {HOSTILE}")
    shown = page.locator("#queues .paused")
    await expect(shown).to_contain_text(f"by ann {HOSTILE}")  # as text
    await expect(shown).to_contain_text(f"db down {HOSTILE}")
    assert await page.evaluate("window.owned") is None
    await expect(page.locator("#workers .source")).to_contain_text("orders (paused)")
    await shown.get_by_role("button", name="Resume orders").click()
    await expect(shown).to_have_count(0)
    assert await service.pauses() == []
    assert (await service.audit(1))[0]["action"] == "resume"


async def test_the_worker_of_the_server_is_shown(page: Page) -> None:
    row = page.locator("#workers tr")
    await expect(row).to_have_count(1)
    await expect(row.locator(".state")).to_have_text("running")
    await expect(row).to_contain_text("orders")


async def test_a_viewer_sees_a_pause_and_cannot_end_it(browser: Browser, shop: Shop, server: Server) -> None:
    await Service(shop.app).pause("orders", actor=acting("ann"))
    page = await browser.new_page()
    await page.goto(f"http://127.0.0.1:{server.port}/#token={await token_of(shop, Role.VIEWER)}")
    await expect(page.locator("#queues .paused")).to_contain_text("by ann")
    await expect(page.locator("#queues .paused button")).to_have_count(0)
    await page.close()
