"""What somebody on call does, from the first look to the end, in Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from redrive import Policy, Redrive, immediate
from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.config.settings import Access, Settings, Upkeep
from redrive.forensics.query import Query
from redrive.model import letter_id
from redrive.telemetry.events import MessageBuried
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at, page_of

pytestmark = pytest.mark.servers
MANY = 8


async def test_the_cause_of_a_storm_is_found_from_the_overview(page: Page, shop: Shop) -> None:
    for number in range(0, 2 * MANY, 2):
        await shop.app.send("orders", {"id": 100 + number}, id=f"storm{number}")
    cause = page.locator("main a", has_text="redrive.errors.Permanent").first
    await expect(cause).to_be_visible()
    await cause.click()
    await expect(page.locator("#summary .stat-value").first).to_have_text(str(MANY + 2), timeout=SOON)
    await expect(page.locator("#typical")).to_contain_text("no connection to")
    await page.locator("#letters a", has_text="All").click()
    await expect(page.locator("#letters tbody tr")).to_have_count(MANY + 2)


async def test_a_replay_whose_canary_dies_again_pauses_says_why_and_goes_on_when_the_bug_is_mended(
    page: Page, shop: Shop
) -> None:
    await page.goto(page.url + "console/groups")
    await page.locator("tr", has_text="Permanent").get_by_role("link", name="Replay").click()
    await expect(page.locator("#plan")).to_contain_text("2 letters")
    await page.check("#guarded")
    await page.locator("#order input[type=number]").nth(1).fill("1")
    await page.fill("#reason", "is it mended?")
    await page.click("#confirm")
    await expect(page.locator("#paused")).to_contain_text("the bug is still there", timeout=SOON)
    shop.broken = False
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#progress .stat", has_text="Resolved")).to_contain_text("1", timeout=SOON)
    await expect(page.locator("h1 [data-state=sent]")).to_be_visible(timeout=SOON)
    await page.get_by_role("button", name="Died again").click()
    await expect(page.locator("#ledger tbody tr")).to_have_count(1)


async def test_a_letter_is_edited_and_resolved(page: Page, server: Server, shop: Shop) -> None:
    id = letter_id("orders", "m1")
    await page.goto(at(server, f"/letters/{id}"))
    await page.get_by_role("button", name="Edit…").click()
    await page.locator("dialog textarea").fill('{"id": 41}')
    await page.get_by_role("button", name="Show the diff").click()
    await page.get_by_role("button", name="Keep this version").click()
    await expect(page.locator("#versions")).to_be_visible()
    shop.broken = False
    await page.click("#retry")
    await expect(page.locator("h1 [data-state=resolved]")).to_be_visible(timeout=SOON)
    assert shop.handled == [41]


async def test_a_viewer_sees_and_is_offered_nothing_to_do(browser: Browser, server: Server, shop: Shop) -> None:
    page = await page_of(browser, server, shop, Role.VIEWER, f"/letters/{letter_id('orders', 'm1')}")
    await expect(page.locator("h1")).to_contain_text("ValueError")
    assert await page.get_by_role("button", name="Retry now").count() == 0
    assert await page.get_by_role("button", name="Archive").count() == 0
    await page.goto(at(server, "/replays/new?ids=" + letter_id("orders", "m1")))
    await expect(page.locator("main")).to_contain_text("Starting a replay takes an operator")
    await page.goto(at(server, "/audit"))
    await expect(page.locator("main")).to_contain_text("Not allowed")


async def test_a_link_with_its_filters_is_followed_by_somebody_else(
    browser: Browser, server: Server, shop: Shop, page: Page
) -> None:
    await page.goto(at(server, "/letters?text=order+1&states=pending"))
    await expect(page.locator("#letters tbody tr")).to_have_count(1)
    other = await page_of(browser, server, shop, Role.VIEWER, page.url.partition("/console")[2])
    await expect(other.locator("#letters tbody tr")).to_have_count(1)


async def test_a_letter_is_found_and_retried_by_keyboard_alone(page: Page, shop: Shop) -> None:
    shop.broken = False
    await page.keyboard.press("?")
    await expect(page.locator("#help")).to_contain_text("replay or retry")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Meta+k")
    await page.keyboard.type("letters")
    await page.keyboard.press("Enter")
    await expect(page.locator("#letters tbody tr")).to_have_count(3)
    await page.keyboard.press("/")
    await page.keyboard.type("order 1")
    await expect(page.locator("#letters tbody tr")).to_have_count(1)
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator("#retry")).to_be_enabled()
    await page.keyboard.press("r")
    await expect(page.locator("h1 [data-state=resolved]")).to_be_visible(timeout=SOON)
    assert shop.handled == [1]


async def test_all_that_match_go_back_together(page: Page, server: Server, shop: Shop) -> None:
    shop.broken = False
    await page.goto(at(server, "/letters?states=pending"))
    await page.locator("#letters tbody [data-box]").first.check()
    await page.get_by_role("button", name="Choose all that match").click()
    await expect(page.locator(".chosen")).to_contain_text("All 3 that match")
    await page.locator(".chosen").get_by_role("link", name="Replay…").click()
    await expect(page.locator("#plan")).to_contain_text("3 letters")
    await page.click("#confirm")
    await expect(page.locator("#progress .stat", has_text="Resolved")).to_contain_text("3")
    assert sorted(shop.handled) == [0, 1, 2]


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Redrive]:
    """A shop where two letters at once take a second person."""
    url = f"sqlite:///{tmp_path}/strict.db"
    settings = Settings(
        store=url,
        transports={"default": url},
        worker="w",
        upkeep=Upkeep(interval=timedelta(milliseconds=10)),
        access=Access(approve_over=1),
    )
    made, buried = Redrive(settings=settings), asyncio.Semaphore(0)
    made.events.subscribe(lambda event: buried.release() if isinstance(event, MessageBuried) else None)

    @made.handler("orders", policy=Policy(attempts=1, backoff=immediate()))
    async def charge(order: dict[str, int]) -> None:
        raise ValueError("no price")

    async with made:
        for number in range(2):
            await made.send("orders", {"id": number})
        server = Server(made, "127.0.0.1", 0)
        listening = asyncio.Event()
        task = asyncio.create_task(server.run(lambda _: listening.set()))
        await listening.wait()
        made.__dict__["server"] = server
        async with asyncio.timeout(30):
            await buried.acquire()
            await buried.acquire()
        yield made
        server.stop()
        async with asyncio.timeout(20):
            await task


async def test_a_second_person_approves_and_the_first_cannot(strict: Redrive, browser: Browser) -> None:
    server: Server = strict.__dict__["server"]
    shop = type("Of", (), {"app": strict})
    ann = await page_of(browser, server, shop, Role.OPERATOR, "/replays/new", "ann")  # type: ignore[arg-type]
    await expect(ann.locator("#plan")).to_contain_text("2 letters")
    await ann.get_by_text("Every letter there is, of every").click()
    await ann.click("#confirm")
    await expect(ann.locator("main")).to_contain_text("Somebody else has to approve it")
    assert await ann.get_by_role("button", name="Approve").count() == 0
    bob = await page_of(browser, server, shop, Role.OPERATOR, "/approvals", "bob")  # type: ignore[arg-type]
    await bob.locator("#approvals a.title").click()
    await bob.get_by_role("button", name="Approve…").click()
    await bob.locator("dialog").get_by_role("button", name="Approve").click()
    await expect(ann.locator("h1 .pill")).not_to_have_text("waiting", timeout=SOON)
    (group,) = await strict.store.letters.groups(Query())
    assert group.count == 2
