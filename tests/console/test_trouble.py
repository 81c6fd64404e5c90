"""Two people at one letter, bodies of five megabytes, tokens that end, links to what is gone, clocks that are wrong: in
Chromium."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.forensics.query import Query
from redrive.model import letter_id
from redrive.service import Service
from redrive.testing.builders import make_letter, make_message
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, at, page_of, token_of

pytestmark = pytest.mark.servers
LETTER = letter_id("orders", "m1")
FIVE_MEGABYTES = json.dumps([{"id": number, "note": HOSTILE} for number in range(55_000)]).encode()


async def test_who_edits_what_a_colleague_has_edited_is_told_and_loses_nothing(
    browser: Browser, server: Server, shop: Shop
) -> None:
    page = await page_of(browser, server, shop, Role.OPERATOR, f"/letters/{LETTER}")
    await page.get_by_role("button", name="Edit…").click()
    await page.locator("dialog textarea").fill('{"id": 1, "mine": true}')
    service = Service(shop.app)
    await service.edits.edit(await service.find(LETTER), actor=acting("bob"), body=b'{"id": 1, "his": true}')
    await expect(page.locator("dialog .caution").first).to_contain_text("Somebody else has edited it")
    await page.get_by_role("button", name="Show the diff").click()
    await page.get_by_role("button", name="Keep this version").click()
    await expect(page.locator("dialog .caution").last).to_contain_text("meanwhile")
    await expect(page.locator("dialog textarea")).to_have_value('{"id": 1, "mine": true}')
    letter = await service.find(LETTER)
    assert letter.message.body == b'{"id": 1, "his": true}'
    await page.close()


async def test_who_acts_second_is_told_what_it_is_now(browser: Browser, server: Server, shop: Shop) -> None:
    ann = await page_of(browser, server, shop, Role.OPERATOR, f"/letters/{LETTER}", "ann")
    await expect(ann.locator("#retry")).to_be_enabled()
    await Service(shop.app).archive(Query(ids=(LETTER,)), actor=acting("bob"))
    await expect(ann.locator("h1 [data-state=archived]")).to_be_visible()  # without a reload
    await expect(ann.locator("#retry")).to_be_disabled()
    await ann.close()


@pytest.fixture
async def large(shop: Shop) -> str:
    letter = make_letter(make_message(source="emails", body=FIVE_MEGABYTES))
    await shop.app.store.letters.record([letter])
    return letter.id


async def test_five_megabytes_are_unmasked_for_a_reason_and_the_page_stays_small(
    page: Page, server: Server, shop: Shop, large: str
) -> None:
    await page.goto(at(server, f"/letters/{large}"))
    await page.get_by_role("button", name="Unmask…").click()
    await page.fill("dialog input[name=reason]", "a ticket")
    await page.locator("dialog").get_by_role("button", name="Unmask").click()
    await expect(page.locator("#body")).to_contain_text("Unmasked")
    await expect(page.locator("#body .tree")).to_contain_text("54,900 more")
    for view, rest in (("Text", "Show all"), ("Hex", "More of"), ("Tree", "54,900 more")):
        await page.get_by_role("button", name=view, exact=True).click()
        await expect(page.locator("#body .body")).to_contain_text(rest)
        assert await page.evaluate("document.querySelectorAll('*').length") < 5000
    assert await page.evaluate("window.owned") is None
    lines = [line for line in await Service(shop.app).audit() if line["action"] == "unmask"]
    assert {line["reason"] for line in lines} == {"a ticket"}


async def test_the_edit_of_five_megabytes_begins_with_a_patch(page: Page, server: Server, large: str) -> None:
    await page.goto(at(server, f"/letters/{large}"))
    await page.get_by_role("button", name="Unmask…").click()
    await page.fill("dialog input[name=reason]", "a ticket")
    await page.locator("dialog").get_by_role("button", name="Unmask").click()
    await expect(page.locator("#body")).to_contain_text("Unmasked")
    await page.get_by_role("button", name="Edit…").click()
    await expect(page.get_by_role("button", name="JSON Patch")).to_have_attribute("aria-pressed", "true")
    await expect(page.locator("dialog .caution")).to_contain_text("keeps a browser busy")


async def test_what_is_shown_cut_is_not_taken_for_the_whole_body(
    page: Page, server: Server, shop: Shop, large: str
) -> None:
    await page.goto(at(server, f"/letters/{large}"))
    await page.get_by_role("button", name="Edit…").click()
    await expect(page.locator("dialog .caution")).to_contain_text("not shown as it is")
    await page.get_by_role("button", name="The whole body").click()
    await expect(page.locator("dialog textarea")).to_have_value("")
    await page.get_by_role("button", name="JSON Patch").click()
    await page.locator("dialog textarea").fill('[{"op": "replace", "path": "/0/id", "value": 7}]')
    await page.get_by_role("button", name="Show the diff").click()
    await page.get_by_role("button", name="Keep this version").click()
    await expect(page.locator("#versions")).to_be_visible()
    letter = await shop.app.store.letters.get(large)
    assert letter is not None
    assert json.loads(letter.message.body)[0]["id"] == 7
    assert len(json.loads(letter.message.body)) == 55_000


async def test_only_those_who_may_are_offered_to_unmask(browser: Browser, server: Server, shop: Shop) -> None:
    page = await page_of(browser, server, shop, Role.OPERATOR, f"/letters/{LETTER}")
    await expect(page.locator("#retry")).to_be_visible()
    await expect(page.get_by_role("button", name="Unmask…")).to_have_count(0)
    await page.close()


async def test_a_token_that_ends_while_somebody_types_costs_nothing_of_it(
    browser: Browser, server: Server, shop: Shop
) -> None:
    group = (await shop.app.store.letters.groups(Query()))[0].id
    tokens = Tokens(shop.app.store.documents, shop.app.clock)
    token, text = await tokens.create("short", Role.OPERATOR)
    page = await browser.new_page()
    await page.goto(at(server, f"/groups/{group}#token={text}"))
    await page.fill("#notes textarea", "half a th")
    await tokens.revoke(token.id)
    await page.fill("#sign-in-token", await token_of(shop, Role.OPERATOR))
    await page.keyboard.press("Enter")
    await expect(page.locator("#sign-in")).to_have_count(0)
    await expect(page.locator("#notes textarea")).to_have_value("half a th")
    await page.get_by_role("button", name="Add a note").click()
    await expect(page.locator("#notes li")).to_contain_text("half a th")
    await page.close()


async def test_what_is_typed_into_a_dialog_stays_while_the_page_goes_on(page: Page, server: Server, shop: Shop) -> None:
    service = Service(shop.app)
    replay = await service.replay(Query(), actor=acting("ann"), every=True, rate=0.1)
    await page.goto(at(server, f"/replays/{replay.id}"))
    await page.get_by_role("button", name="Pace…").click()
    await page.fill("dialog input[name=rate]", "7")
    await page.check("dialog input[name=guarded]")
    await service.pause_replay(replay.id, actor=acting("bob"), why="let me look")
    await expect(page.locator("#paused")).to_contain_text("let me look")  # by somebody else, seen at once
    await expect(page.locator("dialog input[name=rate]")).to_have_value("7")
    await expect(page.locator("dialog input[name=guarded]")).to_be_checked()


async def test_a_replay_does_not_begin_with_a_number_that_is_none(page: Page, server: Server) -> None:
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.url.endswith("/api/replays") else None)
    await page.goto(at(server, "/replays/new?sources=orders"))
    await page.check("#guarded")
    for label, wrong in (("Letters a second", "0"), ("A few first", ""), ("Pause over percent", "")):
        field = page.get_by_role("spinbutton", name=label)
        right = await field.input_value()
        await field.fill(wrong)
        await page.click("#confirm")
        await expect(field).to_be_focused()
        assert await field.evaluate("field => field.validationMessage") != ""
        await field.fill(right)
    await page.fill("#rate", "0.5")
    await page.click("#confirm")
    await expect(page.locator("#progress")).to_contain_text("3 letters")
    await expect(page.locator("main")).to_contain_text("0.5 a second")
    assert len(asked) == 1


async def test_a_link_to_what_is_gone_says_so_and_leads_on(browser: Browser, server: Server, shop: Shop) -> None:
    page = await page_of(browser, server, shop, Role.OPERATOR, "/letters")
    for kind in ("letters", "groups", "replays", "incidents", "approvals", "sources"):
        await page.goto(at(server, f"/{kind}/01m7r566wmn6hhf6ns3sgcvkfq"))
        not_found = page.locator("main .trouble", has_text="Not found")
        await expect(not_found.or_(page.get_by_text("This source is not known now"))).to_be_visible()
        await page.locator("main a.back").click()
        await expect(page.locator("h1")).to_have_text(kind.capitalize())
    await page.close()


async def test_a_clock_that_is_wrong_by_an_hour_selects_by_the_servers(
    browser: Browser, server: Server, shop: Shop
) -> None:
    token = await token_of(shop, Role.OPERATOR)
    group = (await shop.app.store.letters.groups(Query()))[0].id
    for hours in (-1, 1):
        page = await browser.new_page()
        await page.clock.install(time=shop.app.clock.now() + timedelta(hours=hours))
        await page.goto(at(server, f"/letters?last=15m#token={token}"))
        await expect(page.locator("#letters tbody tr")).to_have_count(3)
        await page.goto(at(server, "/replays/new"))
        await expect(page.locator("#plan")).to_contain_text("3 letters")
        await page.goto(at(server, f"/groups/{group}"))
        await expect(page.locator("#summary time").first).not_to_contain_text("h ")
        await page.close()
