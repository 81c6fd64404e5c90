"""The console shows who has the turns, in a real browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

from redrive.admin.server import Server
from redrive.config.settings import Settings
from redrive.systems.email import EmailGateway
from redrive.testing.waiting import until
from tests.servers.chromium import Chromium
from tests.systems.email.jobs import job
from tests.systems.email.mailserver import Mailbox
from tests.systems.email.world import is_drained

HOSTILE = '<img src=x onerror="window.owned=1">'


@pytest.fixture
async def browser(chromium: Chromium) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(**chromium.launch_options)
        yield made
        await made.close()


async def test_a_table_of_companies(settings: Settings, mailbox: Mailbox, browser: Browser) -> None:
    async with EmailGateway(settings) as gateway:
        await gateway.add_all([job("o-1", "acme"), job("o-2", HOSTILE)])
        server, listening = Server(gateway.app, "127.0.0.1", 0, upkeep=False), asyncio.Event()
        serving = asyncio.create_task(server.run(lambda _: listening.set()))
        await listening.wait()
        await until(lambda: is_drained(gateway))
        page = await browser.new_page()
        await page.goto(f"{server.address}console/sources#token={server.one_time}")
        await page.wait_for_selector("#turns li")
        rows = [await row.inner_text() for row in await page.locator("#turns li").all()]
        sources = await page.locator("#turns h3").all_inner_texts()
        owned = await page.evaluate("window.owned")
        await page.close()
        server.stop()
        await serving
    assert sorted(row.splitlines()[0] for row in rows) == [HOSTILE, "acme"]
    assert sources == ["email:send"]
    assert owned is None
