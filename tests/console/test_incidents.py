"""The panel of incidents, in Chromium."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.alerts import Alert, Severity
from redrive.alerts.incidents import Incident, Timing
from redrive.forensics.query import Query
from redrive.service import Service
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, token_of

pytestmark = pytest.mark.servers


async def opened(shop: Shop, key: str, *, group: str | None = None) -> Incident:
    alert = Alert(
        key=key,
        name="NewGroup",
        severity=Severity.ERROR,
        summary=f"{key} {HOSTILE}",
        starts_at=datetime.now(UTC),
        group=group,
        source="orders",
    )
    return await Service(shop.app).incidents.report(alert, Timing(timedelta(hours=4), timedelta(minutes=2)))


async def test_there_is_no_panel_while_nothing_is_wrong(page: Page) -> None:
    await expect(page.locator("#live")).to_have_text("live")
    await expect(page.locator("#incidents-panel")).to_be_hidden()


async def test_an_incident_is_acknowledged_and_resolved(page: Page, shop: Shop) -> None:
    one = await opened(shop, "first")
    row = page.locator("#incidents tr")
    await expect(row).to_contain_text(f"first {HOSTILE}")  # as text
    assert await page.evaluate("window.owned") is None
    await row.get_by_role("button", name="Acknowledge").click()
    await expect(row.locator(".state")).to_have_text("acknowledged")
    await expect(row.get_by_role("button", name="Acknowledge")).to_have_count(0)
    await row.get_by_role("button", name="Resolve").click()
    await expect(page.locator("#incidents-panel")).to_be_hidden()
    assert (await Service(shop.app).incidents.get(one.id)).state == "resolved"


async def test_an_incident_leads_to_the_letters_of_its_group(page: Page, shop: Shop) -> None:
    groups = await shop.app.store.letters.groups(Query())
    largest = groups[0]
    await opened(shop, "grows", group=largest.id)
    await page.locator("#incidents button.link").click()
    await expect(page.locator("#letters tr")).to_have_count(largest.count)
    await page.click("#group-filter")
    await expect(page.locator("#letters tr")).to_have_count(3)


async def test_a_link_of_an_alert_opens_its_group(browser: Browser, shop: Shop, server: Server) -> None:
    groups = await shop.app.store.letters.groups(Query())
    token = await token_of(shop, Role.VIEWER)
    await opened(shop, "grows", group=groups[0].id)
    page = await browser.new_page()
    await page.goto(f"http://127.0.0.1:{server.port}/#group={groups[0].id}&token={token}")
    await expect(page.locator("#letters tr")).to_have_count(groups[0].count)
    await expect(page.locator("#group-filter")).to_contain_text(groups[0].id)
    await expect(page.locator("#incidents tr")).to_have_count(1)
    assert await page.locator("#incidents .actions button").count() == 0  # a viewer sees, and cannot act
    await page.close()
