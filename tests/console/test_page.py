"""The page at `/`, in Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.model import Message, letter_id
from redrive.telemetry.events import Event, LetterResolved
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.transports.base import SendResult, busy
from redrive.transports.memory import MemoryTransport
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, token_of

pytestmark = pytest.mark.servers


async def test_the_token_leaves_the_address_bar_and_stays_in_the_tab(page: Page, server: Server) -> None:
    assert page.url == f"http://127.0.0.1:{server.port}/"
    await page.reload()
    await expect(page.locator("#live")).to_have_text("live")


async def test_it_shows_totals_groups_and_letters(page: Page) -> None:
    await expect(page.locator('.tile[data-state="pending"] .tile-count')).to_have_text("3")
    await expect(page.locator("#groups tr")).to_have_count(2)
    await expect(page.locator("#groups tr").first).to_contain_text("redrive.errors.Permanent")
    await expect(page.locator("#letters tr")).to_have_count(3)


async def test_nothing_that_a_message_says_becomes_markup(page: Page) -> None:
    await page.click(f"[data-key=letter-{letter_id('orders', 'm0')}]")
    await expect(page.locator("#letter")).to_contain_text(HOSTILE)  # as text: tenant, header and body
    assert "hunter2" not in await page.locator("#letter").inner_text()
    await page.keyboard.press("Escape")
    await page.click(f"[data-key=letter-{letter_id('orders', 'm1')}]")
    await expect(page.locator("#letter .headline")).to_contain_text("<b>price</b>")
    assert await page.evaluate("window.owned") is None
    assert await page.locator("#letter img, #letter script, #letter b, main img").count() == 0


async def test_a_letter_is_opened_and_closed_with_the_keyboard(page: Page) -> None:
    first = page.locator("#letters button").first
    await first.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#letter")).to_be_visible()
    await expect(page.locator("#letter pre").last).to_contain_text("Traceback")
    await first.evaluate("one => one.dataset.old = true")
    await expect(page.locator("#letters [data-old]")).to_have_count(0)  # the next answer made it anew
    await page.keyboard.press("Escape")
    await expect(page.locator("#letter")).to_be_hidden()
    await expect(first).to_be_focused()


async def test_the_focus_survives_the_next_answer(page: Page) -> None:
    await page.locator("#letters button").nth(1).focus()
    async with page.expect_response("**/api/letters*"):
        pass
    await expect(page.locator("#letters button").nth(1)).to_be_focused()


async def test_filters_narrow_the_letters(page: Page) -> None:
    await page.fill("#filters [name=text]", "order 1")
    await expect(page.locator("#letters tr")).to_have_count(1)
    await page.fill("#filters [name=text]", "")
    await page.click("#groups tr:has-text('Permanent') button.link")
    await expect(page.locator("#letters tr")).to_have_count(2)
    await page.click("#group-filter")
    await expect(page.locator("#letters tr")).to_have_count(3)
    await page.click('.tile[data-state="resolved"]')
    await expect(page.locator("#letters")).to_contain_text("No letter matches")


async def test_a_letter_is_archived(page: Page) -> None:
    await page.locator("#letters button").first.click()
    await page.click("#archive")
    await expect(page.locator(".toast")).to_contain_text("is archived")
    await expect(page.locator('.tile[data-state="archived"] .tile-count')).to_have_text("1")


async def test_a_letter_is_retried_and_resolves(page: Page, shop: Shop) -> None:
    shop.broken = False
    await page.click(f"[data-key=letter-{letter_id('orders', 'm1')}]")
    await page.click("#retry")
    await expect(page.locator('.tile[data-state="resolved"] .tile-count')).to_have_text("1")
    assert shop.handled == [1]


async def test_a_group_is_replayed_after_its_plan_was_confirmed(page: Page, shop: Shop) -> None:
    resolved = asyncio.Semaphore(0)
    shop.app.events.subscribe(lambda event: _count(event, resolved))
    await page.click("#groups tr:has-text('Permanent') .actions button")
    await expect(page.locator("#replay")).to_contain_text("2 back to orders")
    assert shop.handled == []
    shop.broken = False
    await page.fill("#reason", "mended")
    await page.click("#confirm")
    async with asyncio.timeout(20):
        await resolved.acquire()
        await resolved.acquire()
    await expect(page.locator("#progress")).to_contain_text("2 resolved")
    assert sorted(shop.handled) == [0, 2]


def _count(event: Event, resolved: asyncio.Semaphore) -> None:
    if isinstance(event, LetterResolved):
        resolved.release()


class _Full(MemoryTransport):
    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        return [busy("the queue is at its limit")] * len(messages)


@pytest.fixture
async def full(shop: Shop) -> None:
    """A letter whose queue takes nothing; before the server starts, which knows only the transports of then."""
    shop.app.use("full", _Full(clock=shop.app.clock, lease=timedelta(minutes=1)))
    now = shop.app.clock.now()
    failure = make_failure(type="Overflow", at=now)
    letter = make_letter(make_message(source="shelves"), failure, at=now, transport="full")
    await shop.app.store.letters.record([letter])


async def test_a_replay_that_waits_says_for_what(full: None, page: Page) -> None:
    await page.click("#groups tr:has-text('Overflow') .actions button")
    await page.click("#confirm")
    progress = page.locator("#progress")
    await expect(progress).to_contain_text("Waits for full/shelves: the queue is at its limit. Given up in ")
    await expect(progress).to_contain_text("1 selected")


async def test_the_key_that_asks_for_a_plan_does_not_agree_to_it(page: Page, shop: Shop) -> None:
    await page.focus("#groups tr:has-text('Permanent') .actions button")
    await page.keyboard.press("Enter")
    await expect(page.locator("#replay .caution")).to_contain_text("permanent")
    await page.keyboard.press("Enter")  # as when it is held down
    await expect(page.locator("#replay")).to_be_hidden()
    assert await shop.app.store.documents.list("replay") == []


async def test_json_is_shown_as_it_was_written_at_any_depth(page: Page, shop: Shop) -> None:
    exact = b'{"b": 1.0, "a": 12345678901234567890123, "a": [{}, "x\\"]", -0]}'
    deep = b"[" * 20_000 + b"]" * 20_000
    letters = [make_letter(make_message(body=body), at=datetime.now(UTC)) for body in (exact, deep)]
    await shop.app.store.letters.record(letters)
    shown = '{\n  "b": 1.0,\n  "a": 12345678901234567890123,\n  "a": [\n    {},\n    "x\\"]",\n    -0\n  ]\n}'
    for letter, text in zip(letters, (shown, deep.decode()), strict=True):
        await page.click(f"[data-key=letter-{letter.id}]")
        await expect(page.locator("#letter .part pre").first).to_have_text(text)
        assert await page.locator("#letter .part pre").first.text_content() == text
        await page.keyboard.press("Escape")


async def test_letters_of_every_system_can_be_read(page: Page, shop: Shop) -> None:
    node = "pipestream.3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    stream = make_letter(
        make_message(id="stream", source=node, body=b"\x0a\x02s1\x10\x00\x1a\x01"),
        at=datetime.now(UTC),
        transport="kafka",  # which nobody here sends to
        next_retry_at=datetime.now(UTC) - timedelta(minutes=3),
    )
    await shop.app.store.letters.record([stream])
    await page.set_viewport_size({"width": 1280, "height": 800})
    await expect(page.locator("#letters")).to_contain_text(node)
    for table in await page.locator(".scroll").all():
        assert await table.evaluate("one => one.scrollWidth <= one.clientWidth")
    await expect(page.locator(f"#letters tr:has-text('{node}')")).to_contain_text("overdue 3m")
    await page.click(f"[data-key=letter-{stream.id}]")
    await expect(page.locator("#letter .part pre").first).to_have_text("binary, 8 bytes: 0a 02 73 31 10 00 1a 01")


async def test_a_viewer_sees_and_cannot_act(browser: Browser, shop: Shop, server: Server) -> None:
    token = await token_of(shop, Role.VIEWER)
    page = await browser.new_page()
    await page.goto(f"http://127.0.0.1:{server.port}/#token={token}")
    await page.wait_for_selector("#letters button")
    assert await page.locator("#groups .actions button").count() == 0
    await page.locator("#letters button").first.click()
    await expect(page.locator("#letter")).to_contain_text("Attempts")
    assert await page.locator("#retry, #archive").count() == 0
    await page.close()


async def test_without_a_token_it_asks_for_one(browser: Browser, shop: Shop, server: Server) -> None:
    page = await browser.new_page()
    await page.goto(f"http://127.0.0.1:{server.port}/")
    await expect(page.locator("#sign-in")).to_be_visible()
    await page.fill("#sign-in-token", "rdr_wrong")
    await page.keyboard.press("Enter")
    await expect(page.locator("#live")).to_contain_text("unknown or revoked")
    await page.fill("#sign-in-token", await token_of(shop, Role.VIEWER))
    await page.keyboard.press("Enter")
    await expect(page.locator("#live")).to_have_text("live")
    await page.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_nothing_overflows(browser: Browser, server: Server, width: int, scheme: str) -> None:
    page = await browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    await page.goto(server.url)
    await page.wait_for_selector("#letters button")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await page.close()


async def test_every_route_is_on_a_page_of_its_own(page: Page, server: Server) -> None:
    await page.goto(f"http://127.0.0.1:{server.port}/docs")
    await page.get_by_text("GET /api/letters", exact=True).click()
    shown = await page.locator("details[open]").inner_text()
    assert "Newest first" in shown
    assert "list of one of" in shown  # states
    assert "integer, 1 to 1000" in shown
    described = await (await page.request.get(f"http://127.0.0.1:{server.port}/openapi.json")).json()
    operations = sum(len(methods) for methods in described["paths"].values())
    assert await page.locator("details").count() == operations > 40
