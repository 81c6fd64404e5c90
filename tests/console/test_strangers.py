"""What strangers, and colleagues in a hurry, write is shown as they wrote it, on every page: it runs nowhere, is markup
nowhere, and hides nowhere."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from redrive.admin.server import Server
from redrive.forensics.query import Query
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.admin.conftest import Shop
from tests.console.conftest import at
from tests.console.strangers import HIDDEN, NASTY, write_everywhere

pytestmark = pytest.mark.servers

RAN = """() => window.owned === undefined && !document.querySelector("#app img, #app script, #app b, #app iframe")"""
HIDES = """(hidden) => {
  const found = [...document.querySelectorAll("#app, #app *")].flatMap((one) => [
    ...[...one.childNodes].filter((node) => node.nodeType === 3).map((node) => [one.tagName, node.data]),
    ...["title", "aria-label", "placeholder", "data-label"].map((name) => [name, one.getAttribute(name) ?? ""])]);
  return [["title of the page", document.title], ...found]
    .filter(([, text]) => [...hidden].some((mark) => text.includes(mark))).map(([where]) => where);
}"""


async def test_what_strangers_write_runs_nowhere_and_hides_nowhere(page: Page, server: Server, shop: Shop) -> None:
    group, replay, incident = await write_everywhere(shop.app)
    letters = (await shop.app.store.letters.search(Query(sources=(NASTY,)), limit=10)).letters
    source = quote(NASTY, safe="")
    menu = ["/groups?every=yes", "/letters", "/replays", "/sources", "/incidents?show=all", "/approvals", "/audit"]
    named = [f"/groups/{group.id}", *(f"/letters/{letter.id}" for letter in letters), f"/replays/{replay}"]
    of = [f"/incidents/{incident}", f"/sources/{source}", "/sources/emails", f"/replays/new?group={group.id}"]
    filters = f"sources={source}&tenants={source}&code={source}"
    asked = [f"/letters?text={source}", f"/letters?{filters}", f"/nothing/{source}"]
    by = ["/?by=source", "/?by=category", "/tokens", "/settings"]
    hiding: dict[str, list[str]] = {}
    for path in (*menu, *named, *of, *asked):
        await _look(page, at(server, path), path, hiding)
    for path in by:
        await _look(page, at(server) + path[1:] if path.startswith("/?") else at(server, path), path, hiding)
    assert hiding == {}


@pytest.mark.parametrize("width", [1280, 390])
async def test_what_strangers_write_makes_no_page_wider_than_the_screen(
    page: Page, server: Server, shop: Shop, width: int
) -> None:
    group, replay, incident = await write_everywhere(shop.app)
    now = shop.app.clock.now()
    message = make_message(source="x" * 300, headers=(("h" * 4000, b"v" * 4000),))
    letter = make_letter(message, make_failure(type="T" * 500, message="word" * 2000, at=now), at=now)
    await shop.app.store.letters.record([letter])
    await page.set_viewport_size({"width": width, "height": 800})
    menu = ["/groups", "/letters", "/replays", "/sources", "/incidents", "/approvals", "/audit"]
    named = [f"/groups/{group.id}", f"/replays/{replay}", f"/incidents/{incident}", f"/letters/{letter.id}"]
    wider: list[str] = []
    for path in ("/", *menu, *named):
        await _look(page, at(server, path), path, {})
        if await page.evaluate("document.documentElement.scrollWidth") > width:
            wider.append(path)
    assert wider == []
    value, among = page.locator("#headers dd"), page.locator("#headers dl")
    assert await value.evaluate("one => one.clientWidth") > await among.evaluate("all => all.clientWidth") / 3


async def _look(page: Page, address: str, path: str, hiding: dict[str, list[str]]) -> None:
    await page.goto(address)
    await expect(page.locator("h1")).to_be_visible()
    await expect(page.locator("main .skeleton")).to_have_count(0)
    await expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    assert await page.evaluate(RAN), path
    found = await page.evaluate(HIDES, HIDDEN)
    if found:
        hiding[path[:30]] = found
