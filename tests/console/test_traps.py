"""What was seen on the page that was here before, and may not come back, in Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.flow.replay import Replays
from redrive.forensics.query import Query
from redrive.model import Message, State, letter_id
from redrive.service import Service
from redrive.service.replaying import LARGE
from redrive.testing.builders import make_letter, make_message
from redrive.transports.base import SendResult, refused
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import at, page_of

pytestmark = pytest.mark.servers
LETTER = letter_id("orders", "m1")


async def test_what_the_ledger_skipped_is_not_said_to_be_sent_back(
    page: Page, server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(messages: Sequence[Message]) -> Sequence[SendResult]:
        return [refused("the queue takes no more than 1 KB")] * len(messages)

    monkeypatch.setattr(shop.app.transport(), "send", refuses)
    await page.goto(at(server, f"/letters/{LETTER}"))
    await page.click("#retry")
    await expect(page.locator(".toast")).to_contain_text("Not sent: skipped, the queue takes no more than 1 KB")
    await expect(page.locator("h1 [data-state=pending]")).to_be_visible()


async def test_stop_sending_answers_and_what_was_stopped_stays_to_be_found(
    page: Page, server: Server, shop: Shop
) -> None:
    slow = await Service(shop.app).replay(Query(), actor=acting("ann"), every=True, rate=0.1, reason="too early")
    await page.goto(at(server, f"/replays/{slow.id}"))
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Cancel the replay").click()
    await expect(page.locator(".toast")).to_contain_text("no more of it is sent")
    await expect(page.locator("h1 .pill")).to_have_text("cancelled")
    await page.goto(at(server, "/replays"))
    await page.locator("#ended").get_by_text("too early").click()
    await expect(page.locator("h1")).to_contain_text("too early")
    await expect(page.locator("#ledger tbody tr")).to_have_count(3)


async def test_a_replay_of_thousands_is_shown_while_its_letters_are_selected(
    page: Page, server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = shop.app.clock.now()
    many = [make_letter(make_message(source="emails"), at=now) for _ in range(LARGE + 1)]
    await shop.app.store.letters.record(many)
    looked_at, real = asyncio.Event(), Replays.run

    async def when_looked_at(self: Replays, id: str, **options: Any) -> Any:
        await looked_at.wait()
        return await real(self, id, **options)

    monkeypatch.setattr(Replays, "run", when_looked_at)
    await page.goto(at(server, "/replays/new?sources=emails"))
    await page.uncheck("#guarded")
    await page.click("#confirm")
    await expect(page.locator("h1 .pill")).to_have_text("freezing")
    await expect(page.locator("#progress")).to_contain_text("its letters are being selected")
    looked_at.set()
    await expect(page.locator("#progress")).to_contain_text(f"{LARGE + 1:,} letters")


class Searches:
    """Searches for a text, none of which ends by itself."""

    def __init__(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self._real = shop.app.store.letters.search
        monkeypatch.setattr(shop.app.store.letters, "search", self._search)

    async def _search(self, query: Query, **options: Any) -> Any:
        if not query.text:
            return await self._real(query, **options)
        self.begun.put_nowait(query.text)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.put_nowait(query.text)


async def test_a_search_begins_when_typing_rests_and_ends_the_one_before_in_the_store(
    browser: Browser, server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = Searches(shop, monkeypatch)
    page = await page_of(browser, server, shop, Role.VIEWER, "/letters")
    await expect(page.locator("#letters tbody tr")).to_have_count(3)
    await page.locator("[data-search]").focus()
    await page.clock.install()
    await page.clock.pause_at(await page.evaluate("Date.now() + 1000"))
    for key in "price":
        await page.keyboard.press(key)
        await page.clock.run_for(100)
    assert searches.begun.empty()
    await page.clock.run_for(1000)
    async with asyncio.timeout(30):
        assert await searches.begun.get() == "price"
    await page.keyboard.type("less")
    await page.clock.run_for(1000)
    async with asyncio.timeout(30):
        assert await searches.ended.get() == "price"
        assert await searches.begun.get() == "priceless"
    await page.close()
    async with asyncio.timeout(30):
        assert await searches.ended.get() == "priceless"
    assert searches.begun.empty()


async def test_exact_times_are_read_on_a_phone_where_nobody_hovers(
    browser: Browser, server: Server, shop: Shop
) -> None:
    page = await page_of(browser, server, shop, Role.VIEWER, "/groups")
    await page.set_viewport_size({"width": 390, "height": 800})
    await expect(page.locator("tbody tr").first.locator(".exact").first).to_be_visible()
    await page.goto(at(server, f"/letters/{LETTER}"))
    await expect(page.locator("#about .exact").first).to_be_visible()
    await page.set_viewport_size({"width": 1280, "height": 800})
    await expect(page.locator("#about .exact").first).to_be_visible()
    await page.close()


async def test_an_archived_letter_comes_back(page: Page, server: Server, shop: Shop) -> None:
    await page.goto(at(server, f"/letters/{LETTER}"))
    await page.get_by_role("button", name="Archive", exact=True).click()
    await expect(page.locator("h1 [data-state=archived]")).to_be_visible()
    await page.get_by_role("button", name="Unarchive").click()
    await expect(page.locator("h1 [data-state=pending]")).to_be_visible()
    letter = await shop.app.store.letters.get(LETTER)
    assert letter is not None
    assert letter.state is State.PENDING


async def test_the_reason_of_a_wrong_token_stands_above_all_else(browser: Browser, server: Server, shop: Shop) -> None:
    page = await browser.new_page()
    await page.goto(at(server, "/#token=rdr_wrong"))
    why = page.locator("#sign-in-why")
    await expect(why).to_contain_text("unknown or revoked")
    above = "why => { const { x, y, width, height } = why.getBoundingClientRect();"
    assert await why.evaluate(above + " return document.elementFromPoint(x + width / 2, y + height / 2) === why; }")
    await page.close()
