"""What is long, odd or mistyped: a name that is a way, an error of 20 KB, steps that are none, and a round number."""

from __future__ import annotations

import json
from datetime import timedelta
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from redrive.admin.server import Server
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.admin.conftest import Shop
from tests.console.conftest import SOON, at

pytestmark = pytest.mark.servers
NAMES = (".", "..", "a/b", "../x", "50%", "%2e", "#", "?name=y", "a b/", "-", "\\")


async def test_the_page_of_a_source_opens_whatever_its_name_is(page: Page, server: Server, shop: Shop) -> None:
    now = shop.app.clock.now()
    letters = [make_letter(make_message(source=name, id=f"of {name}"), at=now) for name in NAMES]
    await shop.app.store.letters.record(letters)
    for letter in letters:
        await page.goto(at(server, "/sources"))
        name = letter.message.source
        await page.locator("#sources a.title").get_by_text(name, exact=True).click()
        await expect(page.locator("h1")).to_contain_text(name)
        await page.reload()
        await expect(page.locator(".stats", has_text="Letters")).to_be_visible()
        await page.goto(at(server, f"/letters/{quote(letter.id)}"))
        await page.locator("#about a", has_text=name).first.click()
        await expect(page.locator(".stats", has_text="Letters")).to_be_visible()


async def test_a_long_error_begins_short_and_is_shown_whole_on_request(page: Page, server: Server, shop: Shop) -> None:
    said, kind = "ab" * 10_000, "shop." + "Long" * 150
    failure = make_failure(message=said, type=kind, at=shop.app.clock.now())
    letter = make_letter(make_message(id="long"), failure, at=shop.app.clock.now())
    await shop.app.store.letters.record([letter])
    for path, row in (("/letters", "#letters tbody tr"), ("/groups", "#groups tbody tr"), ("/", "#groups tbody tr")):
        await page.goto(at(server, path))
        title = page.locator(f"{row} a.title", has_text="LongLong")
        await expect(title).to_be_visible()
        assert len(await title.inner_text()) < 200
    await page.goto(at(server, f"/letters/{letter.id}"))
    headline = page.locator(".headline")
    await expect(headline).to_contain_text("abab")
    assert len(await headline.inner_text()) < 1000
    await headline.get_by_role("button", name="Show all").click()
    await expect(headline).to_contain_text(letter.failures[-1].message)
    await page.locator("h1").get_by_role("button", name="Show all").click()
    await expect(page.locator("h1")).to_contain_text(letter.failures[-1].type)


@pytest.mark.parametrize("steps", ["5,200", "20,5", "5,", "5,,20", "5 20", "0,50", "5,1e1000"])
async def test_steps_that_are_none_are_told_at_the_field(page: Page, server: Server, steps: str) -> None:
    await page.goto(at(server, "/replays/new?sources=orders"))
    await page.check("#guarded")
    field = page.get_by_label("Then percent of all")
    await field.fill(steps)
    await page.click("#confirm")
    assert "such as 5,20,100" in await field.evaluate("(field) => field.validationMessage")
    await expect(field).to_be_focused()
    assert "/replays/new" in page.url
    await field.fill("5, 20.5,100")
    await page.click("#confirm")
    await expect(page.locator("#progress")).to_be_visible()


async def test_an_export_says_that_there_are_more_only_where_there_are(page: Page, server: Server, shop: Shop) -> None:
    page.set_default_timeout(2 * SOON)
    now, most = shop.app.clock.now(), 10_000
    died = make_failure(at=now)
    many = [make_letter(make_message(source="emails"), died, at=now - timedelta(seconds=n)) for n in range(most)]
    await shop.app.store.letters.record(many)
    exported = "10,000 letters exported, as they are shown"
    for said in (exported, f"The newest {exported}; redrive export has them all"):
        await page.goto(at(server, "/letters?sources=emails"))
        await page.locator("#letters tbody [data-box]").nth(0).check()
        await page.get_by_role("button", name="Choose all that match").click()
        async with page.expect_download():
            await page.get_by_role("button", name="Export").click()
        await expect(page.locator(".toast span").last).to_have_text(said)
        await shop.app.store.letters.record([make_letter(make_message(source="emails"), died, at=now)])


async def test_a_stack_of_a_megabyte_and_a_name_of_thousands_make_no_endless_page(
    page: Page, server: Server, shop: Shop
) -> None:
    now, said, name = shop.app.clock.now(), "m" * 1_000_000, "s" * 2000
    stack = f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    {said}\nx.Long: {said}'
    message = make_message(
        source=name, tenant=name, key=name.encode(), correlation_id=name, body=json.dumps({name: said}).encode()
    )
    letter = make_letter(message, make_failure(message=said, stack=stack, at=now), at=now)
    await shop.app.store.letters.record([letter])
    for path in (f"/letters/{letter.id}", f"/groups/{letter.group}", "/groups", "/letters", "/"):
        await page.goto(at(server, path))
        await expect(page.locator("main time").first).to_be_visible()
        await expect(page.locator("main .skeleton")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollHeight") < 4000, path
    await page.goto(at(server, f"/letters/{letter.id}"))
    raised = page.locator("#attempts .raised").last
    await raised.get_by_role("button", name="Show all").click()
    assert len(await raised.inner_text()) > 10_000


async def test_of_many_attempts_those_that_are_opened_are_made(page: Page, server: Server, shop: Shop) -> None:
    now = shop.app.clock.now()
    stack = "Traceback (most recent call last):\n" + '  File "/app/shop.py", line 1, in f\n    x()\n' * 50
    died = [make_failure(attempt=n, message=f"try {n}", stack=f"{stack}E: {n}", at=now) for n in range(1, 201)]
    letter = make_letter(make_message(id="many"), *died, at=now)
    await shop.app.store.letters.record([letter])
    await page.goto(at(server, f"/letters/{letter.id}"))
    attempts = page.locator("#attempts details.fold")
    await expect(attempts.last).to_contain_text("try 200")
    assert await page.evaluate("document.querySelectorAll('*').length") < 5000
    await attempts.first.locator("summary").first.click()
    await expect(attempts.first).to_contain_text("try 1")
    await expect(attempts.first.locator(".frame-of").first).to_be_visible()
