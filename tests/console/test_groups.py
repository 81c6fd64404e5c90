"""The list of groups, in Chromium: paged and sorted by the server, each with how it stands and whom it hit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.async_api import Page, expect

from redrive.admin.server import Server
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, at

pytestmark = pytest.mark.servers
MANY = 55


@pytest.fixture
async def many(shop: Shop) -> None:
    """Groups beyond one page: of `g54` there are the most letters, and they are the oldest."""
    now = shop.app.clock.now()
    letters = []
    for number in range(MANY):
        died = now - timedelta(hours=number)
        for _ in range(number + 1):
            message = make_message(source="mails", tenant=f"tenant-{number}")
            failure = make_failure(type=f"Error{number:02}", at=died)
            letters.append(make_letter(message, failure, at=died, group=f"g{number:02}"))
    await shop.app.store.letters.record(letters)


async def test_groups_are_sorted_and_paged_by_the_server(many: None, page: Page, server: Server) -> None:
    await page.goto(at(server, "/groups"))
    rows = page.locator("#groups tbody tr")
    await expect(rows).to_have_count(50)
    await expect(rows.first).to_contain_text("Error54")
    await page.get_by_role("button", name="Next page").click()
    await expect(rows).to_have_count(MANY + 2 - 50)  # two are the shop's own
    await expect(page.locator(".pager")).to_contain_text("51–57")
    await page.reload()
    await expect(rows).to_have_count(MANY + 2 - 50)
    await page.get_by_role("button", name="Last seen").click()
    await expect(rows).to_have_count(50)
    await expect(rows.first).to_contain_text("Error00")
    assert "sort=last_seen" in page.url
    assert "skip" not in page.url
    await page.get_by_role("button", name="Previous page").wait_for()
    await expect(page.get_by_role("button", name="Previous page")).to_be_disabled()


async def test_a_group_says_how_it_stands_and_whom_it_hit(many: None, page: Page, server: Server, shop: Shop) -> None:
    service = Service(shop.app)
    await service.mute("g53", timedelta(hours=1), actor=acting("ann"), why="we know")
    await service.fix("g52", "2.0", actor=acting("ann"))
    await page.goto(at(server, "/groups?every=yes&last=1h"))  # the trend is of the last day, whatever is shown

    def row(name: str) -> str:
        return f"#groups tr[data-row={name}]"

    await expect(page.locator(row("g54"))).to_contain_text("tenant-54")
    for name, standing in {"g54": "quiet", "g53": "muted", "g52": "fixed", "g08": "new"}.items():
        await expect(page.locator(f"{row(name)} .pill")).to_have_text(standing)
    await page.goto(at(server, "/groups?sort=last_seen"))
    await expect(page.locator("#groups tbody")).to_contain_text(HOSTILE)  # the tenant, as text
    assert await page.locator("#groups img").count() == 0


async def test_what_a_link_narrows_to_is_said_and_can_be_taken_away(many: None, page: Page, server: Server) -> None:
    await page.goto(at(server, "/groups?sources=orders&categories=resource"))
    await expect(page.locator("#groups .empty")).to_contain_text("No group matches")
    await expect(page.locator("#groups")).not_to_contain_text("Nothing is dead")
    await page.get_by_role("button", name="Remove the filter categories").click()
    await expect(page.locator("#groups tbody tr")).to_have_count(2)
    await expect(page.get_by_role("button", name="Remove the filter sources")).to_contain_text("orders")
    await page.get_by_role("button", name="Remove the filter sources").click()
    await expect(page.locator("#groups tbody tr")).to_have_count(50)


async def test_where_every_group_is_muted_nobody_is_told_that_nothing_is_dead(
    page: Page, server: Server, shop: Shop
) -> None:
    service = Service(shop.app)
    for group in await service.groups(Query()):
        await service.mute(group.id, timedelta(hours=1), actor=acting("ann"), why="we know")
    for path in ("/groups", "/"):
        await page.goto(at(server, path))
        await expect(page.locator("#groups .empty")).to_contain_text("Every group with open letters is muted")
    await page.locator("#groups .empty a").click()
    await expect(page.locator("#groups tbody tr")).to_have_count(2)
