"""Acts that wait for a second person: who asked is told so, and who approves sees what they say yes to."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.model import letter_id
from tests.admin.conftest import Shop
from tests.console.conftest import at, page_of, token_of
from tests.console.test_accessible import Things, page, shop, things  # noqa: F401
from tests.console.test_letters import ROWS

pytestmark = pytest.mark.servers


async def _archive(page: Page) -> None:  # noqa: F811
    await page.get_by_role("button", name="Archive…").click()
    await page.locator("dialog").get_by_role("button", name="Archive").click()
    await expect(page.locator(".toast")).to_contain_text("second person")
    await expect(page.locator(".toast").get_by_role("button", name="Undo")).to_have_count(0)
    await page.locator(".toast").get_by_role("link", name="Show").click()
    await expect(page.locator("h1")).to_contain_text("archive of")


async def test_whoever_approves_is_led_to_the_group_and_to_the_letters(
    browser: Browser,
    server: Server,
    shop: Shop,  # noqa: F811
    things: Things,  # noqa: F811
) -> None:
    ann = await page_of(browser, server, shop, Role.OPERATOR, f"/letters?groups={things.group}", "ann")
    await expect(ann.locator(ROWS)).to_have_count(2)
    await ann.locator(f"{ROWS} [data-box]").nth(0).check()
    await ann.get_by_role("button", name="Choose all that match").click()
    await _archive(ann)
    bob = await page_of(browser, server, shop, Role.OPERATOR, ann.url.partition("/console")[2], "bob")
    await expect(bob.locator("main")).to_contain_text("Permanent")
    await bob.get_by_role("link", name="Those that match now").click()
    await expect(bob.locator(ROWS)).to_have_count(2)
    await bob.go_back()
    await bob.get_by_role("link", name=f"group {things.group}").click()
    await expect(bob.locator("#typical")).to_be_visible()
    await ann.close()
    await bob.close()


async def test_whoever_approves_is_led_to_letters_that_were_chosen_one_by_one(
    page: Page,  # noqa: F811
    server: Server,
    shop: Shop,  # noqa: F811
) -> None:
    await page.goto(at(server, "/letters"))
    await page.get_by_label("Choose all rows that are shown").check()
    await _archive(page)
    await expect(page.locator(f"main a[href$='/letters/{letter_id('orders', 'm1')}']")).to_be_visible()
    await page.get_by_role("link", name="Those that match now").click()
    await expect(page.locator(ROWS)).to_have_count(3)


async def test_a_selection_that_no_page_shows_is_not_linked(
    page: Page,  # noqa: F811
    server: Server,
    shop: Shop,  # noqa: F811
) -> None:
    headers = {"Authorization": f"Bearer {await token_of(shop, Role.OPERATOR)}"}
    async with httpx.AsyncClient(base_url=at(server), headers=headers) as http:
        query = {"transports": ["default"]}
        asked = (await http.post("/api/letters/archive", json={"query": query})).json()
    await page.goto(at(server, f"/approvals/{asked['approval']['id']}"))
    await expect(page.locator("main")).to_contain_text("cannot list")
    await expect(page.get_by_role("link", name="Those that match now")).to_have_count(0)
