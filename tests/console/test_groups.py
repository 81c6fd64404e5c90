"""What is said of groups on the page, in Chromium."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from redrive.forensics.query import Query
from redrive.service import Service
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE

pytestmark = pytest.mark.servers


async def test_a_group_is_fixed_in_a_version_and_that_is_taken_back(page: Page, shop: Shop) -> None:
    row = page.locator("#groups tr").first
    await row.get_by_role("button", name="Fixed in").click()
    await page.fill("#said input[name=version]", "1.4.2")
    await page.fill("#said input[name=why]", HOSTILE)
    await page.get_by_role("button", name="It is fixed").click()
    await expect(row.locator("[data-standing=fixed]")).to_be_visible()
    await expect(row).to_contain_text("not deployed yet")
    marks = await Service(shop.app).marks.all()
    assert [mark.fix.version for mark in marks.values() if mark.fix] == ["1.4.2"]
    await row.get_by_role("button", name="Not fixed").click()
    await expect(row.locator("[data-standing=fixed]")).to_have_count(0)


async def test_a_muted_group_leaves_the_list_and_is_counted_beside_it(page: Page, shop: Shop) -> None:
    total = len(await Service(shop.app).groups(Query()))
    rows = page.locator("#groups tr")
    await expect(rows).to_have_count(total)
    await rows.first.get_by_role("button", name="Mute").click()
    await page.fill("#said input[name=why]", HOSTILE)
    await page.get_by_role("button", name="Mute it").click()
    await expect(rows).to_have_count(total - 1)
    await expect(page.locator("#muted")).to_have_text("1 muted")
    await page.click("#muted")
    await expect(rows).to_have_count(total)
    muted = page.locator("#groups tr", has=page.locator("[data-standing=muted]"))
    await expect(muted).to_contain_text(HOSTILE)  # as text
    assert await page.evaluate("window.owned") is None
    await muted.get_by_role("button", name="Unmute").click()
    await expect(page.locator("#muted")).to_be_hidden()
