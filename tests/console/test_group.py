"""The page of a group, in Chromium: what its letters died of, and what people say of it."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.stores.base import Group
from redrive.systems.pipeline import PipeStream
from redrive.testing.builders import make_letter, make_message
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, SOON, at, token_of

pytestmark = pytest.mark.servers


@pytest.fixture
async def group(shop: Shop) -> Group:
    """The two letters of one cause."""
    return (await shop.app.store.letters.groups(Query()))[0]


@pytest.fixture
async def opened(page: Page, server: Server, group: Group) -> Page:
    await page.goto(at(server, f"/groups/{group.id}"))
    await expect(page.locator("h1")).to_have_text("redrive.errors.Permanent")
    return page


async def test_it_shows_a_typical_letter_and_nothing_of_it_as_markup(opened: Page, group: Group) -> None:
    await expect(opened.locator("#summary")).to_contain_text("2 pending")
    await expect(opened.locator("#typical .trace")).to_contain_text("Traceback")
    await expect(opened.locator("#typical .body")).to_contain_text(HOSTILE.replace('"', '\\"'))  # as it was written
    await expect(opened.locator("#letters tbody tr")).to_have_count(group.count)
    assert await opened.evaluate("window.owned") is None
    assert await opened.locator("main img, main script, main b").count() == 0
    assert "hunter2" not in await opened.locator("main").inner_text()


async def test_it_is_fixed_in_a_version_and_that_is_taken_back(opened: Page, shop: Shop) -> None:
    await opened.get_by_role("button", name="Fixed in").click()
    await expect(opened.locator("dialog input[name=version]")).to_be_focused()
    await opened.fill("dialog input[name=version]", "1.4.2")
    await opened.fill("dialog input[name=why]", HOSTILE)
    await opened.get_by_role("button", name="It is fixed").click()
    await expect(opened.locator(".toast")).to_contain_text("Noted as fixed in 1.4.2")
    await expect(opened.locator("[data-standing=fixed]")).to_be_visible()
    await expect(opened.locator(".standing")).to_contain_text("not deployed yet")
    marks = await Service(shop.app).marks.all()
    assert [mark.fix.version for mark in marks.values() if mark.fix] == ["1.4.2"]
    await opened.get_by_role("button", name="Not fixed").click()
    await expect(opened.locator("[data-standing=fixed]")).to_have_count(0)


async def test_it_is_muted_with_a_reason_and_heard_of_again(opened: Page, shop: Shop) -> None:
    await opened.get_by_role("button", name="Mute").click()
    await opened.fill("dialog input[name=why]", HOSTILE)
    await opened.get_by_role("button", name="Mute it").click()
    await expect(opened.locator("[data-standing=muted]")).to_be_visible()
    await expect(opened.locator(".standing")).to_contain_text(HOSTILE)  # as text
    assert await opened.evaluate("window.owned") is None
    await opened.get_by_role("button", name="Unmute").click()
    await expect(opened.locator("[data-standing=muted]")).to_have_count(0)
    assert await Service(shop.app).muted_groups() == []


async def test_somebody_takes_it_and_writes_down_what_is_known(opened: Page, shop: Shop, group: Group) -> None:
    await opened.get_by_role("button", name="Assign").click()
    await opened.fill("dialog input[name=to]", "ann")
    await opened.locator("dialog").get_by_role("button", name="Assign").click()
    await expect(opened.locator("#summary")).to_contain_text("assigned to ann")
    await opened.fill("#notes textarea", f"the gateway is down {HOSTILE}")
    await opened.get_by_role("button", name="Add a note").click()
    await expect(opened.locator("#notes li")).to_contain_text(f"the gateway is down {HOSTILE}")
    await expect(opened.locator("#notes textarea")).to_have_value("")
    (note,) = await Service(shop.app).group_notes(group.id)
    assert note.actor.startswith("one-time token")


async def test_what_is_being_typed_stays_while_letters_come(opened: Page, shop: Shop) -> None:
    await opened.fill("#notes textarea", "half a th")
    await shop.app.send("orders", {"id": 8}, id="m8")  # the worker of the page's server buries it
    await expect(opened.locator("#summary .stat-value").first).to_have_text("3", timeout=SOON)
    await expect(opened.locator("#notes textarea")).to_have_value("half a th")
    await expect(opened.locator("#notes textarea")).to_be_focused()


async def test_an_act_that_fails_says_why_where_it_was_asked_for(
    browser: Browser, server: Server, shop: Shop, group: Group
) -> None:
    page = await browser.new_page()
    await page.route("**/api/groups/*/fix", lambda route: route.abort())
    await page.goto(at(server, f"/groups/{group.id}#token={await token_of(shop, Role.OPERATOR)}"))
    await page.get_by_role("button", name="Fixed in").click()
    await page.fill("dialog input[name=version]", "1.4.2")
    await page.get_by_role("button", name="It is fixed").click()
    await expect(page.locator("dialog [role=alert]")).to_contain_text("the server does not answer", timeout=SOON)
    await expect(page.locator("dialog input[name=version]")).to_have_value("1.4.2")
    assert await Service(shop.app).marks.all() == {}
    await page.close()


async def test_a_replay_of_it_begins_with_the_wizard(opened: Page, server: Server, group: Group) -> None:
    await opened.keyboard.press("r")
    await opened.wait_for_url(at(server, f"/replays/new?group={group.id}"))


async def test_a_group_that_is_gone_is_told_of(browser: Browser, server: Server, shop: Shop) -> None:
    page = await browser.new_page()
    await page.goto(at(server, f"/groups/nothing#token={await token_of(shop, Role.VIEWER)}"))
    await expect(page.locator("main")).to_contain_text("This group has no letters any more", timeout=SOON)
    await page.close()


async def test_the_link_of_an_alert_opens_it_and_a_viewer_cannot_act(
    browser: Browser, server: Server, shop: Shop, group: Group
) -> None:
    page = await browser.new_page()
    await page.goto(at(server, f"/#group={group.id}&token={await token_of(shop, Role.VIEWER)}"))
    await expect(page.locator("h1")).to_have_text("redrive.errors.Permanent", timeout=SOON)
    await expect(page.locator(".page-acts")).to_have_text("Its letters")
    await expect(page.locator("#notes")).to_contain_text("None yet.", timeout=SOON)
    await expect(page.locator("#notes textarea")).to_have_count(0)
    await page.close()


async def test_it_stands_as_the_list_says(opened: Page, server: Server, shop: Shop, group: Group) -> None:
    state = opened.locator("#summary .pill")
    await expect(state).to_have_text("new")
    await Service(shop.app).fix(group.id, "2.0", actor=acting("ann"))
    await expect(state).to_have_text("fixed")
    await opened.goto(at(server, "/groups"))
    await expect(opened.locator(f"[data-row='{group.id}'] .pill")).to_have_text("fixed")


async def test_a_typical_letter_is_shown_in_its_schema(page: Page, server: Server, shop: Shop) -> None:
    body = PipeStream(stream_id="s-1").SerializeToString()
    letter = make_letter(make_message(source="docs.ocr", body=body), transport="pipeline")
    await shop.app.store.letters.record([letter])
    await page.goto(at(server, f"/groups/{letter.group}"))
    await expect(page.locator("#typical")).to_contain_text("redrive.pipeline.PipeStream")
    await expect(page.locator("#typical .tree")).to_contain_text('"stream_id": "s-1"')
