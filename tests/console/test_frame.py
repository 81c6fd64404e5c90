"""What is around every page of the console, in Chromium: addresses, sign-in, keys, and a server that goes away."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.model import letter_id
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at, token_of

pytestmark = pytest.mark.servers


async def test_the_token_leaves_the_address_bar_and_stays_in_the_tab(page: Page, server: Server) -> None:
    assert page.url == at(server)
    await page.reload()
    await expect(page.locator("#live")).to_have_text("live")


async def test_every_entry_of_the_menu_is_a_page_that_survives_a_reload(page: Page) -> None:
    links = page.locator("#menu li a")
    await expect(links).to_have_count(10)
    for index in range(10):
        name = await links.nth(index).locator("span").first.inner_text()
        await links.nth(index).click()
        await expect(page.locator("h1")).to_have_text(name)
        await expect(links.nth(index)).to_have_attribute("aria-current", "page")
        address = page.url
        await page.reload()
        await expect(page.locator("h1")).to_have_text(name)
        assert page.url == address


async def test_back_goes_to_the_page_before(page: Page, server: Server) -> None:
    await page.click("#menu a:has-text('Groups')")
    await expect(page.locator("h1")).to_have_text("Groups")
    await page.go_back()
    await expect(page.locator("h1")).to_have_text("Overview")
    assert page.url == at(server)


@pytest.mark.parametrize("name", ["Groups", "Letters", "Audit"])
async def test_a_search_field_says_what_the_address_asks_for(page: Page, name: str) -> None:
    entry, field = page.locator(f"#menu a:has-text('{name}')"), page.locator("[data-search]")
    await entry.click()
    await field.fill("nobody")
    await expect(page).to_have_url(re.compile("=nobody"))
    await entry.click()
    await expect(field).to_have_value("")
    await page.go_back()
    await expect(field).to_have_value("nobody")
    await expect(page).to_have_url(re.compile("=nobody"))
    await page.go_forward()
    await expect(field).to_have_value("")
    await expect(page).not_to_have_url(re.compile("nobody"))


async def test_a_link_to_what_is_no_page_says_so(page: Page, server: Server) -> None:
    await page.goto(at(server, "/nothing/here"))
    await expect(page.locator("main")).to_contain_text("Nothing is at /nothing/here")


async def test_a_wrong_token_is_told_in_the_dialog_that_asks(browser: Browser, shop: Shop, server: Server) -> None:
    page = await browser.new_page()
    await page.goto(at(server))
    await expect(page.locator("#sign-in")).to_be_visible(timeout=SOON)
    await expect(page.locator("#sign-in-token")).to_be_focused()
    await page.fill("#sign-in-token", "rdr_wrong")
    await page.keyboard.press("Enter")
    await expect(page.locator("#sign-in-why")).to_contain_text("unknown or revoked", timeout=SOON)
    await page.keyboard.press("Escape")  # there is nothing behind it
    await expect(page.locator("#sign-in")).to_be_visible()
    await page.fill("#sign-in-token", await token_of(shop, Role.VIEWER))
    await page.keyboard.press("Enter")
    await expect(page.locator("#sign-in")).to_have_count(0, timeout=SOON)
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    await page.close()


async def test_a_viewer_is_not_shown_the_pages_of_others(browser: Browser, shop: Shop, server: Server) -> None:
    page = await browser.new_page()
    await page.goto(at(server, f"/#token={await token_of(shop, Role.VIEWER)}"))
    await expect(page.locator("#who")).to_contain_text("viewer", timeout=SOON)
    await expect(page.locator("#menu li a")).to_have_count(6)
    await page.close()


async def test_keys_lead_everywhere_and_are_listed(page: Page, server: Server) -> None:
    await page.keyboard.press("g")
    await page.keyboard.press("l")
    await expect(page.locator("h1")).to_have_text("Letters")
    await page.keyboard.press("?")
    await expect(page.locator("#help")).to_contain_text("next row")
    await page.keyboard.press("Escape")
    await expect(page.locator("#help")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await page.keyboard.type("sourc")
    await expect(page.locator("#palette [role=option]").first).to_contain_text("Sources")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Sources")
    assert page.url == at(server, "/sources")


async def test_a_dialog_gives_the_focus_back(page: Page) -> None:
    link = page.locator("#menu a:has-text('Audit')")
    await link.focus()
    await page.keyboard.press("Control+k")
    await expect(page.locator(".palette-input")).to_be_focused()
    await page.keyboard.type("some")
    await page.keyboard.press("Escape")  # once: the field does not take it to be emptied
    await expect(link).to_be_focused()


async def test_a_dialog_that_must_be_answered_outlasts_every_escape(browser: Browser, server: Server) -> None:
    page = await browser.new_page()
    await page.goto(at(server))
    await expect(page.locator("#sign-in")).to_be_visible(timeout=SOON)
    await page.fill("#sign-in-token", "half a token")
    for _ in range(5):  # the browser lets a page refuse the first one only
        await page.keyboard.press("Escape")
    await expect(page.locator("#sign-in-token")).to_be_focused()
    await expect(page.locator("#sign-in-token")).to_have_value("half a token")
    await page.close()


async def test_a_click_beside_a_dialog_closes_it_only_if_nothing_was_typed_into_it(page: Page, server: Server) -> None:
    await page.goto(at(server, f"/letters/{letter_id('orders', 'm1')}"))
    edit = page.get_by_role("button", name="Edit…")
    await edit.click()
    await page.locator("dialog textarea").fill('{"id": 7}')
    await page.mouse.click(5, 5)
    await page.get_by_role("button", name="Show the diff").click()
    await expect(page.locator("dialog .diff")).to_contain_text('"id": 7')
    await page.get_by_role("button", name="Cancel").click()
    await edit.click()
    await page.mouse.click(5, 5)
    await expect(page.locator("dialog")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await page.keyboard.type("some")  # a search is no loss
    await page.mouse.click(5, 5)
    await expect(page.locator("dialog")).to_have_count(0)


@pytest.mark.parametrize("way", ["Escape", "×"])
async def test_what_was_typed_into_a_dialog_is_lost_only_at_the_second_escape(
    page: Page, server: Server, way: str
) -> None:
    async def leave() -> None:
        await (page.keyboard.press("Escape") if way == "Escape" else page.get_by_label("Close").click())

    await page.goto(at(server, f"/letters/{letter_id('orders', 'm1')}"))
    edit, body, warning = page.get_by_role("button", name="Edit…"), page.locator("dialog textarea"), "throws it away"
    for again in (False, True):  # what is typed after the warning is warned of, too
        if not again:
            await edit.click()
        await body.fill('{"id": 7}' if again else '{"id": 6}')
        await expect(page.locator("dialog [role=alert]")).to_have_count(0)
        await leave()
        await expect(page.locator("dialog [role=alert]")).to_contain_text(warning)
        await expect(body).to_have_value('{"id": 7}' if again else '{"id": 6}')
    await leave()
    await expect(page.locator("dialog")).to_have_count(0)
    await expect(edit).to_be_focused()
    await edit.click()
    await leave()  # nothing was typed
    await expect(page.locator("dialog")).to_have_count(0)


async def test_nobody_is_led_away_from_a_dialog_with_what_was_typed_into_it(page: Page, server: Server) -> None:
    await page.goto(at(server, f"/letters/{letter_id('orders', 'm1')}"))
    await page.get_by_role("button", name="Edit…").click()
    await page.locator("dialog textarea").fill("two hours of work")
    await page.keyboard.press("Control+k")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(1)
    await expect(page.locator("dialog textarea")).to_have_value("two hours of work")


async def test_colours_are_chosen_and_kept(page: Page) -> None:
    await page.get_by_role("button", name="Colours").click()
    await page.get_by_role("button", name="Colours: light").click()
    await expect(page.locator("html")).to_have_attribute("data-scheme", "dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-scheme", "dark")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_nothing_overflows(browser: Browser, server: Server, width: int, scheme: str) -> None:
    page = await browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    await page.goto(server.url)
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    for path in ("/", "/groups", "/letters", "/replays", "/sources", "/incidents", "/approvals", "/audit", "/tokens"):
        await page.goto(at(server, path))
        await expect(page.locator("h1")).to_be_visible(timeout=SOON)
        await expect(page.locator("main [aria-busy=true]")).to_have_count(0, timeout=SOON)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
    await page.close()


async def test_every_route_is_on_a_page_of_its_own(page: Page, server: Server) -> None:
    await page.goto(f"http://127.0.0.1:{server.port}/docs")
    await page.get_by_text("GET /api/letters", exact=True).click()
    shown = await page.locator("details[open]").inner_text()
    assert "Newest first" in shown
    assert "list of one of" in shown  # states
    assert "integer, 1 to 1000" in shown
    described = await (await page.request.get(f"http://127.0.0.1:{server.port}/openapi.json")).json()
    operations = sum(len(methods) for methods in described["paths"].values())
    assert await page.locator("details").count() == operations > 40
