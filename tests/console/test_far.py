"""Plain http to another machine: what a browser keeps for https and this machine is not there, in Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, async_playwright, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.model import letter_id
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, token_of
from tests.servers.chromium import Chromium

pytestmark = pytest.mark.servers
LETTER = letter_id("orders", "m1")


@pytest.fixture
async def far(shop: Shop, chromium: Chromium) -> AsyncIterator[Page]:
    """The page of a letter, at a name that is not this machine's own."""
    token = await token_of(shop, Role.OPERATOR)  # without one it would not listen there
    server, listening = Server(shop.app, "0.0.0.0", 0), asyncio.Event()
    task = asyncio.create_task(server.run(lambda _: listening.set()))
    async with asyncio.timeout(30):
        await listening.wait()
    args = [*chromium.args, "--host-resolver-rules=MAP redrive.test 127.0.0.1"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(chromium.executable), args=args)
        page = await browser.new_page()
        page.set_default_timeout(SOON)
        await page.goto(f"http://redrive.test:{server.port}/console/letters/{LETTER}#token={token}")
        yield page
        await browser.close()
    server.stop()
    async with asyncio.timeout(20):
        await task


async def test_a_line_is_copied(far: Page) -> None:
    assert not await far.evaluate("isSecureContext")
    await far.get_by_role("button", name="Copy the line for curl").click()
    await expect(far.locator(".toast")).to_have_text("Copied the line for curl")
    await far.keyboard.press("Control+k")
    await far.keyboard.press("Control+v")
    line = await far.locator("#takeaway code").first.inner_text()
    await expect(far.locator(".palette-input")).to_have_value(line)
