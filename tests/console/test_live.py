"""The console follows the server: what changes is seen without a reload, and a server that was away is found again."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Browser, expect

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.forensics.query import Query
from redrive.model import letter_id
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at, token_of

pytestmark = pytest.mark.servers


async def test_a_server_that_restarts_is_told_of_and_found_again(browser: Browser, shop: Shop) -> None:
    token = await token_of(shop, Role.VIEWER)
    (group, *_) = await shop.app.store.letters.groups(Query())
    page = await browser.new_page()
    first = Server(shop.app, "127.0.0.1", 0)
    async with running(first):
        await page.goto(at(first, f"/groups/{group.id}#token={token}"))
        await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
        await expect(page.locator("#summary .stat-value").first).to_have_text("2", timeout=SOON)
    await expect(page.locator("#live")).to_have_text("server away, reconnecting", timeout=SOON)
    await expect(page.locator("h1")).to_have_text("redrive.errors.Permanent")  # what was known stays in sight
    async with running(Server(shop.app, "127.0.0.1", first.port)):
        await shop.app.send("orders", {"id": 8}, id="m8")
        await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
        await expect(page.locator("#summary .stat-value").first).to_have_text("3", timeout=SOON)
        await expect(page.locator(".trouble")).to_have_count(0, timeout=SOON)
    await page.close()


async def test_an_act_without_an_answer_is_not_said_to_be_done_by_itself(browser: Browser, shop: Shop) -> None:
    token = await token_of(shop, Role.OPERATOR)
    page = await browser.new_page()
    server = Server(shop.app, "127.0.0.1", 0)
    async with running(server):
        await page.goto(at(server, f"/letters/{letter_id('orders', 'm1')}#token={token}"))
        await expect(page.get_by_role("button", name="Archive")).to_be_enabled(timeout=SOON)
    await page.get_by_role("button", name="Archive").click()
    told = "the server does not answer – it may have been done"
    await expect(page.locator(".toast")).to_contain_text(told, timeout=SOON)
    await page.close()


async def test_a_server_without_a_stream_is_asked_again_and_again(browser: Browser, server: Server, shop: Shop) -> None:
    (group, *_) = await shop.app.store.letters.groups(Query())
    page = await browser.new_page()
    await page.route("**/api/events", lambda route: route.fulfill(status=404, json={"error": "there is none"}))
    await page.goto(at(server, f"/groups/{group.id}#token={await token_of(shop, Role.VIEWER)}"))
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    await expect(page.locator("#summary .stat-value").first).to_have_text("2", timeout=SOON)
    await shop.app.send("orders", {"id": 8}, id="m8")
    await expect(page.locator("#summary .stat-value").first).to_have_text("3", timeout=SOON)
    await page.close()


async def test_a_token_that_ends_while_the_page_is_open_is_asked_for_anew(
    browser: Browser, server: Server, shop: Shop
) -> None:
    tokens = Tokens(shop.app.store.documents, shop.app.clock)
    token, text = await tokens.create("short", Role.VIEWER)
    page = await browser.new_page()
    await page.goto(at(server, f"/#token={text}"))
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    await tokens.revoke(token.id)
    await expect(page.locator("#sign-in-why")).to_contain_text("unknown or revoked", timeout=SOON)
    await page.fill("#sign-in-token", await token_of(shop, Role.OPERATOR))
    await page.keyboard.press("Enter")
    await expect(page.locator("#who")).to_contain_text("operator", timeout=SOON)
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    await page.close()


async def test_one_panel_that_fails_blanks_no_other(browser: Browser, server: Server, shop: Shop) -> None:
    (group, *_) = await shop.app.store.letters.groups(Query())
    page = await browser.new_page()  # what it says in the browser's own log is meant
    await page.route("**/differs", lambda route: route.fulfill(json="nonsense"))
    await page.route("**/notes", lambda route: route.fulfill(status=200, json={"not": "a list"}))
    await page.goto(at(server, f"/groups/{group.id}#token={await token_of(shop, Role.VIEWER)}"))
    await expect(page.locator("#differs .trouble")).to_contain_text("this cannot be shown", timeout=SOON)
    await expect(page.locator("#notes .trouble")).to_contain_text("this cannot be shown", timeout=SOON)
    await expect(page.locator("#typical .trace")).to_contain_text("Traceback", timeout=SOON)
    await page.close()


async def test_a_browser_whose_clock_is_wrong_by_an_hour_counts_by_the_servers(
    browser: Browser, server: Server, shop: Shop
) -> None:
    (group, *_) = await shop.app.store.letters.groups(Query())
    page = await browser.new_page()
    await page.add_init_script("const real = Date.now; Date.now = () => real() + 3_600_000;")
    await page.goto(at(server, f"/groups/{group.id}#token={await token_of(shop, Role.VIEWER)}"))
    await expect(page.locator("#summary time").first).to_have_text(re.compile(r"^(now|\d+[sm] ago) "))
    await page.close()


class running:
    """A server that ends with the block."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listening = asyncio.Event()

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._server.run(lambda _: self._listening.set()))
        await self._listening.wait()

    async def __aexit__(self, *error: object) -> None:
        self._server.stop()
        async with asyncio.timeout(20):
            await self._task
