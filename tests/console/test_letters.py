"""The pages of letters, in Chromium: a table whose filters are the address, and one letter whole."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from redrive.admin.server import Server
from redrive.model import State, letter_id
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, SOON, at

pytestmark = pytest.mark.servers
ROWS = "#letters tbody tr"


@pytest.fixture
async def opened(page: Page, server: Server) -> Page:
    await page.goto(at(server, "/letters"))
    await expect(page.locator(ROWS)).to_have_count(3)
    return page


async def test_filters_are_the_address_so_that_a_link_can_be_sent(opened: Page) -> None:
    await opened.fill("[data-search]", "order 1")
    await expect(opened.locator(ROWS)).to_have_count(1)
    await opened.select_option("[aria-label=State]", "pending")
    assert "text=order+1" in opened.url
    assert "states=pending" in opened.url
    await opened.goto(opened.url)
    await expect(opened.locator(ROWS)).to_have_count(1)
    await expect(opened.locator("[data-search]")).to_have_value("order 1")
    await opened.select_option("[aria-label=State]", "archived")
    await expect(opened.locator("#letters")).to_contain_text("No letter matches")


async def test_nothing_of_a_message_is_markup(opened: Page, server: Server) -> None:
    await opened.goto(at(server, f"/letters/{letter_id('orders', 'm1')}"))
    await expect(opened.locator("#body")).to_contain_text(HOSTILE.replace('"', '\\"'))
    await expect(opened.locator("#headers")).to_contain_text(HOSTILE)
    await expect(opened.locator("#about")).to_contain_text(HOSTILE)
    assert await opened.evaluate("window.owned") is None
    assert await opened.locator("main img, main script, main b").count() == 0
    assert "hunter2" not in await opened.locator("main").inner_text()


async def test_columns_are_chosen_and_kept(opened: Page) -> None:
    await opened.get_by_text("Columns").click()
    await opened.get_by_label("Message id").check()
    await expect(opened.locator("#letters thead")).to_contain_text("Message")
    await opened.reload()
    await expect(opened.locator("#letters thead")).to_contain_text("Message")


async def test_rows_are_chosen_archived_and_brought_back(opened: Page, shop: Shop) -> None:
    await opened.locator(f"{ROWS} [data-box]").nth(0).check()
    await expect(opened.locator(".chosen")).to_contain_text("1 letter")
    await opened.get_by_role("button", name="Choose all that match").click()
    await expect(opened.locator(".chosen")).to_contain_text("All 3 that match")
    await opened.get_by_role("button", name="Archive…").click()
    await opened.locator("dialog").get_by_role("button", name="Archive").click()
    await expect(opened.locator(".toast").last).to_contain_text("3 letters archived")
    await expect(opened.locator(f"{ROWS} [data-state=archived]")).to_have_count(3)
    await opened.locator(f"{ROWS} [data-box]").nth(1).check()
    await opened.get_by_role("button", name="Unarchive").click()
    await expect(opened.locator(".toast").last).to_contain_text("1 letter back")
    await expect(opened.locator(f"{ROWS} [data-state=archived]")).to_have_count(2)


async def test_a_letter_has_a_next_one_in_the_list_it_was_opened_from(opened: Page) -> None:
    ids = [await row.get_attribute("data-row") for row in await opened.locator(ROWS).all()]
    await opened.locator(f"{ROWS} a.title").first.click()
    await expect(opened.locator("h1")).to_contain_text("Permanent")
    await opened.keyboard.press("]")
    await expect(opened.locator(".page-head code")).to_have_text(str(ids[1]))
    await opened.keyboard.press("[")
    await expect(opened.locator(".page-head code")).to_have_text(str(ids[0]))
    await opened.get_by_text("Back to the list").click()
    await expect(opened.locator(ROWS)).to_have_count(3)


async def test_a_retry_says_what_the_ledger_says(opened: Page, server: Server, shop: Shop) -> None:
    id = letter_id("orders", "m1")
    await opened.goto(at(server, f"/letters/{id}"))
    await expect(opened.locator("#retry")).to_be_enabled()
    now = shop.app.clock.now()  # somebody else is first, behind the back of this page
    await shop.app.store.letters.move([id], expect=[State.PENDING], to=State.ARCHIVED, now=now)
    async with opened.expect_response("**/api/letters/retry"):
        await opened.locator("#retry").evaluate("button => { button.disabled = false; button.click(); }")
    await expect(opened.locator(".toast[data-kind=error]")).to_contain_text("archived", timeout=SOON)


async def test_an_edit_shows_its_diff_is_kept_and_undone(opened: Page, server: Server, shop: Shop) -> None:
    id = letter_id("orders", "m1")
    await opened.goto(at(server, f"/letters/{id}"))
    await opened.get_by_role("button", name="Edit…").click()
    await opened.locator("dialog textarea").fill('{"id": 7}')
    await opened.locator("dialog input").fill("the id was wrong")
    await opened.get_by_role("button", name="Show the diff").click()
    await expect(opened.locator("dialog .diff")).to_contain_text('"id": 7')
    await opened.get_by_role("button", name="Keep this version").click()
    await expect(opened.locator(".toast").last).to_contain_text("Version 1 is kept")
    await expect(opened.locator("#versions")).to_contain_text("the id was wrong")
    letter = await shop.app.store.letters.get(id)
    assert letter is not None
    assert letter.message.body == b'{"id": 7}'
    await opened.get_by_role("button", name="Undo edit").click()
    await expect(opened.locator("#versions")).to_contain_text("Version 2")
    letter = await shop.app.store.letters.get(id)
    assert letter is not None
    assert HOSTILE.replace('"', '\\"').encode() in letter.message.body
