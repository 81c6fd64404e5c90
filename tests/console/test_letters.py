"""The pages of letters, in Chromium: a table whose filters are the address, and one letter whole."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.model import State, letter_id
from redrive.testing.builders import make_letter, make_message
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, SOON, at, page_of
from tests.console.test_accessible import wrong

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


async def test_archiving_all_that_match_is_undone_for_exactly_those(opened: Page, shop: Shop) -> None:
    before = letter_id("orders", "m1")
    await shop.app.store.letters.move([before], expect=[State.PENDING], to=State.ARCHIVED, now=shop.app.clock.now())
    await opened.reload()
    await opened.locator(f"{ROWS} [data-box]").nth(0).check()
    await opened.get_by_role("button", name="Choose all that match").click()
    await opened.get_by_role("button", name="Archive…").click()
    await opened.locator("dialog").get_by_role("button", name="Archive").click()
    await expect(opened.locator(f"{ROWS} [data-state=archived]")).to_have_count(3)
    assert await wrong(opened, ".toasts") == []
    await opened.locator(".toast").get_by_role("button", name="Undo").click()
    await expect(opened.locator(".toast").last).to_contain_text("2 letters back as they were")
    await expect(opened.locator(".toast").get_by_role("button", name="Undo")).to_have_count(0)
    await expect(opened.locator(f"{ROWS} [data-state=archived]")).to_have_count(1)
    await expect(opened.locator(f"[data-row='{before}'] [data-state=archived]")).to_be_visible()


async def test_a_page_says_which_letters_it_shows_however_it_was_come_to(
    opened: Page, server: Server, shop: Shop
) -> None:
    now = shop.app.clock.now()
    many = [make_letter(make_message(source="emails"), at=now - timedelta(seconds=n)) for n in range(120)]
    await shop.app.store.letters.record(many)
    await opened.goto(at(server, "/letters?sources=emails"))
    shown, following = opened.locator(".pager span"), opened.get_by_role("button", name="Next page")
    await expect(shown).to_have_text("1–50")
    await following.click()
    await expect(opened.locator(ROWS).first).to_have_attribute("data-row", many[50].id)
    await following.click()
    await expect(shown).to_have_text("101–120")
    await opened.go_back()
    await expect(shown).to_have_text("51–100")
    await opened.reload()
    await expect(shown).to_have_text("51–100")
    await opened.locator(f"{ROWS} a.title").first.click()
    await opened.get_by_text("Back to the list").click()
    await expect(shown).to_have_text("51–100")
    await opened.get_by_role("button", name="Previous page").click()
    await expect(opened.locator(ROWS).first).to_have_attribute("data-row", many[0].id)
    await expect(shown).to_have_text("1–50")
    await following.click()
    await expect(shown).to_have_text("51–100")
    await opened.select_option("[aria-label=State]", "pending")
    await expect(shown).to_have_text("1–50")
    assert "from=" not in opened.url


async def test_r_replays_the_row_or_those_that_are_chosen(opened: Page) -> None:
    second = await opened.locator(ROWS).nth(1).get_attribute("data-row")
    await opened.keyboard.press("j")
    await opened.keyboard.press("j")
    await opened.keyboard.press("r")
    await expect(opened.locator("#plan")).to_contain_text("1 letter")
    assert opened.url.endswith(f"/replays/new?ids={second}")
    await opened.go_back()
    await expect(opened.locator(f"[data-row='{second}']")).to_be_focused()  # where it was left
    for key in ("x", "k", "x"):
        await opened.keyboard.press(key)
    await expect(opened.locator(".chosen")).to_contain_text("2 letters")
    await opened.keyboard.press("r")
    await expect(opened.locator("#plan")).to_contain_text("2 letters")


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


@pytest.mark.parametrize(("last", "found"), [("2h", 1), ("1h30m", 1), ("4h", 2), ("2d", 3), ("1w", 3)])
async def test_a_time_that_is_not_in_the_menu_narrows_as_it_says(
    page: Page, server: Server, shop: Shop, last: str, found: int
) -> None:
    now = shop.app.clock.now()
    many = [make_letter(make_message(source="emails"), at=now - timedelta(hours=n)) for n in (1, 3, 30)]
    await shop.app.store.letters.record(many)
    await page.goto(at(server, f"/letters?sources=emails&last={last}"))
    await expect(page.locator(ROWS)).to_have_count(found)
    await expect(page.locator("[aria-label=Time] option:checked")).to_have_text(f"last {last}")


@pytest.mark.parametrize("path", ["/letters?last=soon", "/letters?last=1", "/replays/new?last=soon"])
async def test_a_time_that_is_none_is_refused_and_does_not_widen_what_is_acted_on(
    browser: Browser, server: Server, shop: Shop, path: str
) -> None:
    page = await page_of(browser, server, shop, Role.OPERATOR, path)
    await expect(page.locator("main [role=alert]").first).to_contain_text(re.compile("since: .*RFC3339"))
    await expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    await expect(page.locator(ROWS)).to_have_count(0)
    await page.close()


async def test_back_leads_to_the_row_that_a_letter_was_opened_from(page: Page, server: Server, shop: Shop) -> None:
    now = shop.app.clock.now()
    many = [make_letter(make_message(source="emails"), at=now - timedelta(seconds=n)) for n in range(50)]
    await shop.app.store.letters.record(many)
    await page.goto(at(server, "/letters?sources=emails"))
    row = page.locator(f"[data-row='{many[40].id}']")
    for leave in ("Enter", "a click"):
        for back in ("Back", "Back to the list"):
            await row.focus()
            await row.scroll_into_view_if_needed()
            before = await page.evaluate("scrollY")
            await (row.press("Enter") if leave == "Enter" else row.locator("a.title").click())
            await expect(page.locator("#about")).to_be_visible()
            await (page.go_back() if back == "Back" else page.get_by_text(back).click())
            await expect(row).to_be_focused()
            assert before > 0
            await expect(row).to_be_in_viewport()
    await page.keyboard.press("j")
    await expect(page.locator(f"[data-row='{many[41].id}']")).to_be_focused()
