"""A replay is followed to its very end: past the moment when all of it is sent, and past a server that was away."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, Page, Route, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.flow.replay import Replays
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.service.replaying import LARGE
from redrive.stores.base import EntryStatus
from redrive.testing.builders import make_letter, make_message
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at, token_of
from tests.console.test_live import running

pytestmark = pytest.mark.servers
ANN = acting("ann")


async def test_what_becomes_of_its_letters_is_seen_after_all_are_sent(page: Page, server: Server, shop: Shop) -> None:
    shop.broken = False
    service = Service(shop.app)
    await service.pause("orders", actor=ANN, why="a deploy")
    await page.goto(at(server, "/replays/new?sources=orders"))
    await page.click("#confirm")
    await expect(page.locator("h1 [data-state=sent]")).to_be_visible(timeout=SOON)
    await expect(page.locator("#progress .stat", has_text="On their way")).to_contain_text("3")
    await expect(page.locator("#ledger tbody tr", has_text="On their way")).to_have_count(3)
    await service.resume("orders", actor=ANN)
    await expect(page.locator("#progress .stat", has_text="Resolved")).to_contain_text("3", timeout=SOON)
    await expect(page.locator("#ledger tbody tr", has_text="Resolved")).to_have_count(3)


async def test_a_replay_that_was_paused_while_the_server_was_away_is_as_it_is(browser: Browser, shop: Shop) -> None:
    service, token = Service(shop.app), await token_of(shop, Role.OPERATOR)
    slow = await service.replay(Query(), actor=ANN, every=True, rate=0.1, reason="too early")
    page = await browser.new_page()
    first = Server(shop.app, "127.0.0.1", 0)
    async with running(first):
        await page.goto(at(first, f"/replays/{slow.id}#token={token}"))
        await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
        await expect(page.locator("#progress .stat", has_text="Waiting")).to_contain_text("2", timeout=SOON)
    await expect(page.locator("#live")).to_have_text("server away, reconnecting", timeout=SOON)
    await service.pause_replay(slow.id, actor=ANN)
    lines, _ = await shop.app.store.ledger.entries(slow.id, status=EntryStatus.SELECTED)
    await shop.app.store.ledger.mark([replace(line, status=EntryStatus.SKIPPED, note="no way back") for line in lines])
    async with running(Server(shop.app, "127.0.0.1", first.port)):
        await expect(page.locator("h1 .pill")).to_have_text("paused", timeout=SOON)
        await expect(page.locator("#progress .stat", has_text="Skipped")).to_contain_text("2", timeout=SOON)
        await expect(page.locator("#progress .stat", has_text="Waiting")).to_contain_text("0")
    await page.close()


async def test_how_far_each_is_that_runs_or_waits_stands_in_the_list(page: Page, server: Server, shop: Shop) -> None:
    service = Service(shop.app)
    slow = await service.replay(Query(), actor=ANN, every=True, rate=0.1, reason="one by one")
    await service.pause_replay(slow.id, actor=ANN, why="look first")
    await page.goto(at(server, "/replays"))
    row = page.locator("#open tr", has_text="one by one")
    await expect(row.locator("[data-label='how far']")).to_contain_text("0 %", timeout=SOON)
    await service.resume_replay(slow.id, actor=ANN)
    await expect(row.locator("[data-label='how far']")).to_contain_text("33 %", timeout=SOON)


async def test_a_plan_is_asked_for_again_once_the_server_is_back(browser: Browser, shop: Shop) -> None:
    token, page = await token_of(shop, Role.OPERATOR), await browser.new_page()
    first = Server(shop.app, "127.0.0.1", 0)
    async with running(first):
        await page.goto(at(first, f"/replays/new?sources=orders#token={token}"))
        await expect(page.locator("#plan")).to_contain_text("3 letters", timeout=SOON)
        await page.fill("#reason", "the gateway is back")
    await expect(page.locator("#live")).to_have_text("server away, reconnecting", timeout=SOON)
    await page.fill("#rate", "1")
    said = page.locator("main [role=alert]")
    await expect(said).to_contain_text("the server does not answer", timeout=SOON)
    await expect(said).not_to_contain_text("may have been done")  # a plan does nothing
    async with running(Server(shop.app, "127.0.0.1", first.port)):
        await expect(said).to_have_count(0, timeout=SOON)
        await expect(page.locator("#plan")).to_contain_text("Takes at least", timeout=SOON)
        await expect(page.locator("#reason")).to_have_value("the gateway is back")
    await page.close()


async def test_who_resumes_what_a_colleague_has_cancelled_is_told(page: Page, server: Server, shop: Shop) -> None:
    service = Service(shop.app)
    slow = await service.replay(Query(), actor=ANN, every=True, rate=0.1, reason="too early")
    await service.pause_replay(slow.id, actor=ANN)
    await page.goto(at(server, f"/replays/{slow.id}"))

    async def cancelled_meanwhile(route: Route) -> None:
        await service.cancel_replay(slow.id, actor=ANN)
        await route.continue_()

    await page.route("**/resume", cancelled_meanwhile)
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".toast")).to_have_text(re.compile("It is cancelled"))


async def test_a_replay_is_not_said_to_have_no_letters_before_they_are_counted(
    page: Page, server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = shop.app.clock.now() - timedelta(minutes=1)  # a page that is answered late takes the server's clock for slow
    asked, real = asyncio.Event(), Replays.run
    many = [make_letter(make_message(source="emails"), at=now) for _ in range(LARGE + 1)]
    await shop.app.store.letters.record(many)

    async def when_asked_for(self: Replays, id: str, **options: Any) -> Any:
        await asked.wait()
        return await real(self, id, **options)

    async def never(route: Route) -> None:
        """The page waits for its next answer for good: it has what the stream tells."""

    monkeypatch.setattr(Replays, "run", when_asked_for)
    await page.goto(at(server, "/replays/new?sources=emails"))
    await page.locator("#order input[type=number]").first.fill("1")  # a second: it goes on for long
    await page.click("#confirm")
    await expect(page.locator("h1 .pill")).to_have_text("freezing")
    await page.route(re.compile(r"/api/replays/\w+$"), never)
    asked.set()
    await expect(page.locator("h1 .pill")).to_have_text("running")
    await expect(page.locator("#progress")).to_contain_text("its letters are being selected")
    await expect(page.locator("#progress")).not_to_contain_text("0 letters")
