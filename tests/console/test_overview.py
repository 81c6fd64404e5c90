"""The overview and the list of groups, in Chromium: what is dying now, over time."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.admin.server import Server
from redrive.errors import StoreUnavailable
from redrive.service import Service
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at

pytestmark = pytest.mark.servers


async def test_the_chart_is_of_what_somebody_chooses(page: Page) -> None:
    panel = page.locator("#over-time")
    await page.get_by_role("button", name="By source").click()
    await expect(panel.locator(".legend")).to_contain_text("orders3")
    await panel.get_by_role("button", name="resolved", exact=True).click()
    await expect(panel).to_contain_text("Nothing happened in this time")
    assert "outcome=resolved" in page.url
    await panel.get_by_role("button", name="buried", exact=True).click()
    await expect(panel.locator(".legend")).to_contain_text("orders3")


async def test_it_shows_totals_a_chart_and_the_top_groups(page: Page) -> None:
    totals = page.locator("#totals .stat")
    await expect(totals.nth(0)).to_contain_text("Buried3")
    await expect(totals.nth(3)).to_contain_text("Open letters3")
    await expect(totals.nth(4)).to_contain_text("in orders")
    await expect(page.locator("#over-time canvas")).to_be_visible()
    await expect(page.locator("#over-time .legend")).to_contain_text("buried3")
    rows = page.locator("#groups tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("redrive.errors.Permanent")
    await expect(rows.first.locator(".pill")).to_have_text("new")
    await expect(page.locator("#backends")).to_contain_text("answers")


async def test_the_chart_has_a_table_behind_it(page: Page) -> None:
    await page.get_by_role("button", name="By source").click()
    await expect(page.locator("#over-time .legend")).to_contain_text("orders3")
    await page.get_by_text("As a table").click()
    await expect(page.locator("#over-time table tbody td").first).to_have_text("3")


async def test_dragging_over_a_time_looks_closer_and_is_in_the_address(page: Page, server: Server) -> None:
    plot = page.locator("#over-time .u-over")
    await expect(plot).to_be_visible()
    box = await plot.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.9, middle, steps=5)
    await page.mouse.up()
    await page.wait_for_url("**/?since=*&until=*")
    await page.reload()
    await page.get_by_role("button", name="Whole 24 hours").click()
    await page.wait_for_url(at(server))


async def test_a_letter_that_dies_is_seen_without_a_reload(page: Page, shop: Shop) -> None:
    await expect(page.locator("#totals .stat").nth(0)).to_contain_text("Buried3")
    await shop.app.send("orders", {"id": 8}, id="m8")  # the worker of the page's server buries it
    await expect(page.locator("#totals .stat").nth(0)).to_contain_text("Buried4", timeout=SOON)


async def test_a_store_that_is_down_leaves_the_last_numbers_and_says_so(
    browser: Browser, server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await browser.new_page()
    await page.goto(server.url)
    await expect(page.locator("#groups tbody tr")).to_have_count(2, timeout=SOON)

    async def away(*arguments: object, **options: object) -> None:
        raise StoreUnavailable("redrive.db", "the disk is full")

    await page.goto(at(server, "/groups"))
    await expect(page.locator("#groups tbody tr")).to_have_count(2, timeout=SOON)
    with monkeypatch.context() as broken:
        broken.setattr(shop.app.store.letters, "groups", away)
        await shop.app.send("orders", {"id": 8}, id="m8")
        await expect(page.locator("#groups .trouble")).to_contain_text("the disk is full", timeout=SOON)
        await expect(page.locator("#groups tbody tr")).to_have_count(2)  # as they were
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("#groups .trouble")).to_have_count(0, timeout=SOON)
    await page.close()


async def test_groups_are_found_by_text_that_is_in_the_address(page: Page, server: Server) -> None:
    await page.goto(at(server, "/groups"))
    rows = page.locator("#groups tbody tr")
    await expect(rows).to_have_count(2)
    await page.keyboard.press("/")
    await page.keyboard.type("ValueError")
    await expect(rows).to_have_count(1)
    await page.wait_for_url(at(server, "/groups?text=ValueError"))
    await page.reload()
    await expect(rows).to_have_count(1)
    await expect(page.locator("[data-search]")).to_have_value("ValueError")


async def test_a_muted_group_is_left_out_until_it_is_asked_for(page: Page, server: Server, shop: Shop) -> None:
    service = Service(shop.app)
    await page.goto(at(server, "/groups"))
    rows = page.locator("#groups tbody tr")
    await expect(rows).to_have_count(2)
    (first, *_) = await page.evaluate("[...document.querySelectorAll('[data-row]')].map((row) => row.dataset.row)")
    await service.mute(first, service.app.settings.lease, actor=acting("ann"), why="known")
    await expect(rows).to_have_count(1, timeout=SOON)
    await page.get_by_label("Also muted and done").check()
    await expect(rows).to_have_count(2)
    await expect(page.locator("[data-standing=muted]")).to_be_visible()


async def test_rows_are_gone_through_and_opened_by_keys(page: Page, server: Server) -> None:
    await page.goto(at(server, "/groups"))
    rows = page.locator("#groups tbody tr")
    await expect(rows).to_have_count(2)
    await page.keyboard.press("j")
    await expect(rows.nth(0)).to_be_focused()
    await page.keyboard.press("j")
    await expect(rows.nth(1)).to_be_focused()
    await page.keyboard.press("k")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("redrive.errors.Permanent")
