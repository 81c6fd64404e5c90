"""Many open tabs: a browser has six connections to a server, and one stream is enough for all tabs of one login."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.forensics.query import Query
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at, token_of

pytestmark = pytest.mark.servers

_TABS = 8  # a stream for each would leave no connection to load the seventh


async def test_more_tabs_than_a_browser_has_connections_follow_one_stream(
    browser: Browser, server: Server, shop: Shop
) -> None:
    context, streams = await _listening(browser)
    (group, *_) = await shop.app.store.letters.groups(Query())
    address = at(server, f"/groups/{group.id}#token={await token_of(shop, Role.VIEWER)}")
    tabs = [await _opened(context, address) for _ in range(_TABS)]
    assert len(streams) == 1
    await shop.app.send("orders", {"id": 8}, id="m8")
    for tab in tabs:
        await expect(tab.locator("#summary .stat-value").first).to_have_text("3", timeout=SOON)
    await context.close()


async def test_another_tab_follows_when_the_one_that_did_is_closed(
    browser: Browser, server: Server, shop: Shop
) -> None:
    context, streams = await _listening(browser)
    (group, *_) = await shop.app.store.letters.groups(Query())
    address = at(server, f"/groups/{group.id}#token={await token_of(shop, Role.VIEWER)}")
    first, second = [await _opened(context, address) for _ in range(2)]
    async with second.expect_request("**/api/events"):
        await first.close()
    await shop.app.send("orders", {"id": 8}, id="m8")
    await expect(second.locator("#summary .stat-value").first).to_have_text("3", timeout=SOON)
    assert len(streams) == 2
    await context.close()


async def test_a_tab_of_somebody_else_hears_for_itself(browser: Browser, server: Server, shop: Shop) -> None:
    context, streams = await _listening(browser)
    for role in (Role.VIEWER, Role.OPERATOR):
        await _opened(context, at(server, f"/#token={await token_of(shop, role)}"))
    assert len(streams) == 2
    await context.close()


async def _listening(browser: Browser) -> tuple[BrowserContext, list[str]]:
    """A browser of one person, and the streams that its tabs ask for."""
    context, streams = await browser.new_context(), list[str]()
    context.set_default_timeout(SOON)
    context.on("request", lambda asked: streams.append(asked.url) if asked.url.endswith("/api/events") else None)
    return context, streams


async def _opened(context: BrowserContext, address: str) -> Page:
    tab = await context.new_page()
    await tab.goto(address)
    await expect(tab.locator("#live")).to_have_text("live", timeout=SOON)
    if "/groups/" in address:
        await expect(tab.locator("#summary .stat-value").first).to_have_text("2", timeout=SOON)
    return tab
