"""Beside the letters: anything is found from anywhere, a ledger is looked through, the trail is saved."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.stores.base import EntryStatus
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at, token_of

pytestmark = pytest.mark.servers


async def test_a_source_and_a_replay_are_found_from_anywhere(page: Page, server: Server, shop: Shop) -> None:
    service = Service(shop.app)
    replay = await service.replay(Query(sources=("orders",)), actor=acting("ann"), reason="the bank is back")
    await page.keyboard.press("Control+k")
    await page.locator("#palette input").fill("the bank")
    await expect(page.locator("#palette-list")).to_contain_text("replay, running")
    await page.locator("#palette-list li", has_text="replay, running").click()
    await expect(page).to_have_url(at(server, f"/replays/{replay.id}"))
    await page.keyboard.press("Control+k")
    await page.locator("#palette input").fill("orde")
    await page.locator("#palette-list li", has_text="source").click()
    await expect(page).to_have_url(at(server, "/sources/orders"))


async def test_the_audit_trail_is_verified_and_saved_as_a_file(browser: Browser, server: Server, shop: Shop) -> None:
    await Service(shop.app).pause("orders", actor=acting("ann"), why="the gateway is away")
    page = await browser.new_page()
    await page.goto(at(server, f"/audit#token={await token_of(shop, Role.ADMIN)}"))
    await page.get_by_role("button", name="Verify the chain").click()
    await expect(page.locator(".verified")).to_contain_text("Whole", timeout=SOON)
    async with page.expect_download(timeout=SOON) as saved:
        await page.get_by_role("button", name="Export").click()
    file = await saved.value
    assert re.fullmatch(r"audit-\d{4}-\d\d-\d\d\.jsonl", file.suggested_filename)
    text = await asyncio.to_thread(Path(await file.path()).read_text)
    lines = [json.loads(line) for line in text.splitlines()]
    assert "the gateway is away" in json.dumps(lines)
    await page.close()


async def test_what_is_done_elsewhere_is_a_line_of_the_open_trail_by_itself(
    browser: Browser, server: Server, shop: Shop
) -> None:
    page = await browser.new_page()
    await page.goto(at(server, f"/audit#token={await token_of(shop, Role.ADMIN)}"))
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    await expect(page.locator("#audit")).to_contain_text("Nobody has done anything yet", timeout=SOON)
    await Service(shop.app).pause("emails", actor=acting("ann"), why="the mailer is away")
    await expect(page.locator("#audit")).to_contain_text("the mailer is away", timeout=SOON)
    await page.close()


async def test_lines_of_a_ledger_are_searched(page: Page, server: Server, shop: Shop) -> None:
    replay = await Service(shop.app).replay(Query(sources=("orders",)), actor=acting("ann"), reason="the bank is back")
    lines, _ = await shop.app.store.ledger.entries(replay.id)
    await shop.app.store.ledger.mark([replace(lines[1], status=EntryStatus.SKIPPED, note="no way back")])
    await page.goto(at(server, f"/replays/{replay.id}"))
    await expect(page.locator("#ledger tbody tr")).to_have_count(3)
    await page.keyboard.press("/")
    await page.keyboard.type("NO WAY")
    await expect(page.locator("#ledger tbody tr")).to_have_count(1)
    await expect(page.locator("#ledger tbody tr")).to_contain_text(lines[1].letter)
    await expect(page).to_have_url(re.compile("text=NO"))


async def test_a_token_is_made_shown_once_rotated_and_revoked(browser: Browser, server: Server, shop: Shop) -> None:
    tokens = Tokens(shop.app.store.documents, shop.app.clock)
    _, text = await tokens.create("admin", Role.ADMIN, unmask=True)
    page = await browser.new_page()
    page.set_default_timeout(SOON)
    await page.goto(at(server, f"/tokens#token={text}"))
    await page.get_by_role("button", name="New token…").click()
    await page.get_by_label("Name").fill("ci")
    await page.get_by_label("Sources").fill("orders, mail.*")
    await page.get_by_label("May see secrets").check()
    await page.get_by_role("button", name="Make it").click()
    first = await page.locator("#token-text").inner_text()
    made = await tokens.check(first)
    assert made is not None
    assert (made.role, made.scope.sources, made.may_unmask) == (Role.VIEWER, ("orders", "mail.*"), True)
    await page.get_by_role("button", name="I have it").click()
    await expect(page.locator("#tokens tr", has_text="ci")).to_contain_text("may unmask")
    assert first not in await page.content()
    await page.get_by_role("button", name="Rotate ci").click()
    await page.get_by_label("Hours that the old one opens beside it").fill("0")
    await page.get_by_role("button", name="Rotate", exact=True).click()
    second = await page.locator("#token-text").inner_text()
    await page.get_by_role("button", name="I have it").click()
    assert (await tokens.check(first), await tokens.check(second) is not None) == (None, True)
    await page.get_by_role("button", name="Revoke ci").click()
    await page.get_by_role("button", name="Revoke", exact=True).click()
    await expect(page.locator("#tokens tr", has_text="ci").locator(".pill")).to_have_text("revoked")
    assert await tokens.check(second) is None
    await page.close()
