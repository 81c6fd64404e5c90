"""Every page, light and dark, as axe-core sees it: no violation of WCAG 2.1 A and AA."""

from __future__ import annotations

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.forensics.query import Query
from redrive.model import letter_id
from redrive.service import Service
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at, token_of

pytestmark = pytest.mark.servers
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_accessible(browser: Browser, server: Server, shop: Shop, scheme: str) -> None:
    service, letter = Service(shop.app), letter_id("orders", "m1")
    replay = await service.replay(Query(ids=(letter,)), actor=acting("ann"), reason="a look")
    group = (await shop.app.store.letters.groups(Query()))[0].id
    context = await browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    page = await context.new_page()
    page.set_default_timeout(SOON)
    await page.goto(at(server, f"/letters#token={await token_of(shop, Role.ADMIN)}"))
    named = [f"/groups/{group}", f"/letters/{letter}", f"/replays/{replay.id}", "/replays/new", "/sources/orders"]
    menu = ["/groups", "/letters", "/replays", "/sources", "/incidents", "/approvals", "/audit", "/tokens", "/settings"]
    found: dict[str, list[str]] = {}
    for path in ("/", *menu, *named):
        await page.goto(at(server, path))
        await expect(page.locator("h1")).to_be_visible()
        await expect(page.locator("main .skeleton")).to_have_count(0)
        results = await Axe().run(page, options=RULES)
        wrong = [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in results.response["violations"]]
        if wrong:
            found[path] = wrong
    assert found == {}
