"""Every page and dialog, light and dark, as axe-core sees it: no violation of WCAG 2.1 A and AA."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect
from tools.screenshots import routes

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.alerts.incidents import Incidents, Timing
from redrive.alerts.model import Alert, Severity
from redrive.config.settings import Access
from redrive.forensics.query import Query
from redrive.model import letter_id
from redrive.service import Service
from redrive.telemetry.events import MessageBuried
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, SOON, at, token_of

pytestmark = pytest.mark.servers
EVERYTHING = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""All in which one scheme differs from the other."""
AT_A_BROKER = ("/dead-letter-queues/:queue",)
"""Looked at where the broker is: test_sources.py."""
MENU = ("/groups", "/letters", "/replays", "/sources", "/incidents", "/approvals", "/audit", "/tokens", "/settings")


@dataclass(frozen=True)
class Things:
    """One of each, by its id."""

    group: str
    letter: str
    replay: str
    incident: str
    approval: str

    def addresses(self) -> dict[str, str]:
        """Each page that routes.js knows, and where it is here."""
        return {
            "/": "/",
            **{path: path for path in MENU},
            "/groups/:id": f"/groups/{self.group}",
            "/letters/:id": f"/letters/{self.letter}",
            "/replays/new": f"/replays/new?group={self.group}",
            "/replays/:id": f"/replays/{self.replay}",
            "/sources/:name": "/sources/orders",
            "/incidents/:id": f"/incidents/{self.incident}",
            "/approvals/:id": f"/approvals/{self.approval}",
        }


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    """Letters in two groups, where acts on more than one letter wait for a second person."""
    made = Shop(tmp_path / "redrive.db")
    made.app.settings = replace(made.app.settings, access=Access(approve_over=1))
    async with made.app:
        for number in range(3):
            await made.app.send("orders", {"id": number, "note": HOSTILE, "token": "s3cret"}, id=f"m{number}", key="k")
        await made.until(MessageBuried, 3)
        yield made


@pytest.fixture
async def things(shop: Shop, server: Server) -> Things:
    """A replay that is paused, an incident that is open, and an act of somebody else that waits for a second person."""
    service, letter = Service(shop.app), letter_id("orders", "m1")
    replay = await service.replay(Query(ids=(letter,)), actor=acting("ann"), reason="a look")
    await service.pause_replay(replay.id, actor=acting("ann"))
    group = (await shop.app.store.letters.groups(Query()))[0].id
    now = shop.app.clock.now()
    alert = Alert(key="a", name="Growing", severity=Severity.WARNING, summary="it grows", starts_at=now, group=group)
    incidents = Incidents(shop.app.store.documents, shop.app.clock, shop.app.events)
    incident = await incidents.report(alert, Timing(timedelta(hours=1), timedelta(hours=1)))
    headers = {"Authorization": f"Bearer {await token_of(shop, Role.OPERATOR)}"}
    async with httpx.AsyncClient(base_url=at(server), headers=headers) as http:
        asked = (await http.post("/api/letters/archive", json={"query": {}, "all": True})).json()
    return Things(group, letter, replay.id, incident.id, asked["approval"]["id"])


@pytest.fixture
async def page(browser: Browser, server: Server, shop: Shop) -> AsyncIterator[Page]:
    """Opened by an admin whose token is kept, as it is on a long day."""
    made = await (await browser.new_context(reduced_motion="reduce")).new_page()
    made.set_default_timeout(SOON)
    tokens = Tokens(shop.app.store.documents, shop.app.clock)
    await made.goto(f"{at(server)}#token={(await tokens.create('admin', Role.ADMIN, unmask=True))[1]}")
    await expect(made.locator("#live")).to_have_text("live")
    yield made
    await made.context.close()


async def opened(page: Page, address: str) -> None:
    await page.goto(address)
    await expect(page.locator("h1")).to_be_visible()
    await expect(page.locator("main .skeleton, main [aria-busy=true]")).to_have_count(0)


async def wrong(page: Page, within: str | None = None) -> list[str]:
    """What axe-core has against it, in both schemes, when no transition of a colour is under way."""
    found = []
    for scheme, rules in (("light", EVERYTHING), ("dark", COLOURS)):
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        await page.evaluate("Promise.allSettled(document.getAnimations().map((one) => one.finished))")
        results = await Axe().run(page, context=within, options={"runOnly": rules, "resultTypes": ["violations"]})
        found += [f"{scheme}: {it['id']}: {it['nodes'][0]['html'][:160]}" for it in results.response["violations"]]
    return found


async def test_every_page_is_accessible(page: Page, server: Server, things: Things) -> None:
    addresses = things.addresses()
    assert {*addresses, *AT_A_BROKER} == set(routes()), "a page that is not looked at"
    found = {}
    for route, address in addresses.items():
        await opened(page, at(server, address))
        found[route] = await wrong(page)
    assert {route: told for route, told in found.items() if told} == {}


DIALOGS = (
    ("/groups/:id", r"Fixed in…"),
    ("/groups/:id", r"Mute…"),
    ("/groups/:id", r"Assign…"),
    ("/letters/:id", r"Edit…"),
    ("/letters/:id", r"Unmask…"),
    ("/replays/:id", r"Pace…"),
    ("/replays/:id", r"Cancel…"),
    ("/sources", r"Pause orders"),
    ("/approvals/:id", r"Refuse…"),
    ("/approvals/:id", r"Approve…"),
    ("/tokens", r"New token…"),
    ("/tokens", r"Rotate admin"),
    ("/tokens", r"Revoke admin"),
    ("/", r"Go to…"),
    ("/", r"Keys"),
)


async def test_every_dialog_is_accessible_and_gives_the_focus_back(page: Page, server: Server, things: Things) -> None:
    addresses, before, found = things.addresses(), "", {}
    for route, name in DIALOGS:
        if route != before:
            await opened(page, at(server, addresses[route]))
        before = route
        button = page.get_by_role("button", name=re.compile(rf"^{name}"))
        await button.focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("dialog[open]")).to_be_visible()
        assert await page.evaluate("document.querySelector('dialog[open]').contains(document.activeElement)"), name
        found[name] = await wrong(page, "dialog[open]")
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog")).to_have_count(0)
        await expect(button).to_be_focused()
    assert {name: told for name, told in found.items() if told} == {}


async def test_what_opens_in_a_page_is_accessible(page: Page, server: Server, things: Things) -> None:
    await opened(page, at(server, "/letters"))
    await page.get_by_label("Choose all rows that are shown").check()
    await page.get_by_text("Columns", exact=True).click()
    await expect(page.locator(".chosen")).to_contain_text("3 letters")
    assert await wrong(page) == []
    await opened(page, at(server))
    await page.get_by_text("As a table").click()
    await expect(page.locator("#over-time table")).to_be_visible()
    assert await wrong(page) == []


async def test_signing_in_is_accessible_also_when_the_token_is_wrong(browser: Browser, server: Server) -> None:
    page = await (await browser.new_context(reduced_motion="reduce")).new_page()
    page.set_default_timeout(SOON)
    await page.goto(f"{at(server)}#token=rdr_wrong")
    why = page.locator("#sign-in-why")
    await expect(why).to_contain_text("unknown or revoked")
    assert await page.evaluate(
        "document.querySelector('dialog[open]').contains(document.querySelector('#sign-in-why'))"
    )
    assert await wrong(page) == []
    await page.context.close()


async def test_what_is_gone_or_empty_is_accessible_and_says_what_to_do(page: Page, server: Server) -> None:
    gone = {"/groups/none": "All groups", "/letters/none": "All letters", "/sources/none": "It has no handler here"}
    empty = {
        "/replays": "A replay starts from",
        "/audit?who=nobody": "Take one of the filters away",
        "/no/page": "overview",
    }
    missing = {"/replays/none": "Not found", "/incidents/none": "Not found", "/approvals/none": "Not found"}
    found = {}
    for path, words in {**gone, **empty, **missing}.items():
        await page.goto(at(server, path))
        await expect(page.locator("main")).to_contain_text(words)
        found[path] = await wrong(page)
    assert {path: told for path, told in found.items() if told} == {}


async def test_axe_would_see_a_violation(page: Page) -> None:
    assert await wrong(page, "header") == []
    await page.evaluate(
        "document.querySelector('h1').style.color = 'color-mix(in srgb, var(--faint) 30%, var(--page))'"
    )
    told = await wrong(page, "header")
    assert [line.split(": ")[:2] for line in told] == [["light", "color-contrast"], ["dark", "color-contrast"]]


async def test_the_focus_stays_where_it_is_when_a_panel_is_shown_anew(page: Page, server: Server, shop: Shop) -> None:
    await opened(page, at(server))
    totals, row = page.locator("#totals .stat"), page.locator("#groups tbody a").first
    await expect(totals.nth(0)).to_contain_text("Buried3")
    await row.focus()
    await shop.app.send("orders", {"id": 8}, id="m8")
    await expect(totals.nth(0)).to_contain_text("Buried4")
    await expect(page.locator("#groups tbody tr").first).to_contain_text("3")
    await expect(row).to_be_focused()


@pytest.mark.parametrize(("wanted", "moves"), [("no-preference", True), ("reduce", False)])
async def test_nothing_moves_for_whom_it_should_not(browser: Browser, server: Server, wanted: Any, moves: bool) -> None:
    page = await (await browser.new_context(reduced_motion=wanted)).new_page()
    await page.goto(server.url)
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    duration = await page.locator("#sign-out").evaluate("(button) => getComputedStyle(button).transitionDuration")
    assert (duration != "0s") is moves
    await page.context.close()


async def test_a_phone_reads_the_exact_time_without_hovering(browser: Browser, server: Server) -> None:
    page = await (await browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)).new_page()
    await page.goto(server.url)
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    for path in ("/groups", "/letters"):
        await opened(page, at(server, path))
        exact = page.locator("td time .exact").first
        await expect(exact).to_be_visible()
        await expect(exact).to_contain_text(re.compile(r"\d+ \w{3} \d\d:\d\d:\d\d"))
    await page.context.close()
