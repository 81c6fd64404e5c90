"""The page of a letter, in Chromium: where it failed, its trace, its parents and its children."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.systems.pipeline import Document, PipeStream
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, at

pytestmark = pytest.mark.servers
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
STACK = """com.shop.Declined: no
\tat org.springframework.web.Filter.run(Filter.java:3)
\tat com.shop.Cards.pay(Cards.java:12)
\tat org.springframework.web.Filter.go(Filter.java:8)"""


@pytest.fixture
async def parent(shop: Shop) -> str:
    """A letter that died in Java, and one that waits for it."""
    shop.app.settings = replace(
        shop.app.settings, admin=replace(shop.app.settings.admin, trace_url="https://traces.test/t/{trace_id}")
    )
    now = shop.app.clock.now()
    headers = (("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode()),)
    failure = make_failure(type="com.shop.Declined", stack=STACK, at=now)
    letter = make_letter(make_message(id="first", headers=headers), failure, at=now)
    died = now + timedelta(seconds=1)
    child = make_letter(make_message(id="second"), make_failure(at=died), at=died, depends_on=("first", "unknown"))
    await shop.app.store.letters.record([letter, child])
    return letter.id


async def test_a_stack_of_any_runtime_shows_the_users_own_frames(page: Page, server: Server, parent: str) -> None:
    await page.goto(at(server, f"/letters/{parent}"))
    await expect(page.locator("#attempts .where")).to_contain_text("com.shop.Cards.pay")
    await expect(page.locator("#attempts .trace summary")).to_have_text(["1 frame of libraries"] * 2)
    await expect(page.get_by_text("Filter.java:3")).not_to_be_visible()
    await page.locator("#attempts .trace summary").first.click()
    await expect(page.get_by_text("Filter.java:3")).to_be_visible()


async def test_a_letter_leads_to_its_trace(page: Page, server: Server, parent: str) -> None:
    await page.goto(at(server, f"/letters/{parent}"))
    await expect(page.locator(f"#about a:has-text('{TRACE}')")).to_have_attribute(
        "href", f"https://traces.test/t/{TRACE}"
    )


async def test_parents_and_children_lead_to_each_other(page: Page, server: Server, parent: str) -> None:
    await page.goto(at(server, f"/letters/{parent}"))
    child = page.locator("#lineage dd a")
    await expect(child).to_have_count(1)
    await child.click()
    await expect(page.locator("#about")).to_contain_text("second")
    await expect(page.locator("#lineage")).to_contain_text("unknown has no letter")
    await page.click(f"#lineage a:has-text('{parent}')")
    await expect(page.locator("#about")).to_contain_text("first")


async def test_a_link_to_those_that_wait_says_what_it_filters(page: Page, server: Server, parent: str) -> None:
    await page.goto(at(server, "/letters?parents=first&since=2026-01-31T12:00:00Z"))
    await expect(page.locator("#letters tbody tr")).to_have_count(1)
    await expect(page.get_by_role("button", name="Remove the filter since")).to_contain_text("31 Jan")
    await page.get_by_role("button", name="Remove the filter parents").click()
    await expect(page.locator("#letters tbody tr")).to_have_count(5)


@pytest.fixture
async def stream(shop: Shop) -> str:
    """A letter of the pipeline, whose body is Protobuf."""
    document = Document(document_id="report.html", content=HOSTILE.encode())
    body = PipeStream(stream_id="s-1", document=document, metadata={"password": "hunter2"}).SerializeToString()
    letter = make_letter(make_message(id="streamed", source="docs.ocr", body=body), transport="pipeline")
    await shop.app.store.letters.record([letter])
    return letter.id


async def test_a_body_in_a_known_schema_is_shown_in_it(page: Page, server: Server, stream: str) -> None:
    await page.goto(at(server, f"/letters/{stream}"))
    body = page.locator("#body")
    tabs = body.get_by_role("group", name="How the body is shown").get_by_role("button")
    await expect(tabs).to_have_text(["Protobuf", "Tree", "Text", "Hex"])
    await expect(body.get_by_role("button", name="Protobuf")).to_have_attribute("aria-pressed", "true")
    await expect(body).to_contain_text("redrive.pipeline.PipeStream")
    await expect(body.locator(".tree")).to_contain_text('"stream_id": "s-1"')
    await expect(body.locator(".tree")).to_contain_text("<script>window.owned=1</script>")
    await expect(body.locator(".tree")).to_contain_text('"password": "[redacted]"')
    await body.get_by_role("button", name="Text").click()
    await expect(body).not_to_contain_text("stream_id")
    await expect(body).to_contain_text("s-1")
    assert await page.evaluate("window.owned") is None
    await page.goto(at(server, "/letters/m0"))
    await expect(tabs).to_have_text(["Tree", "Text", "Hex"])


async def test_unmasked_it_is_shown_as_it_is(browser: Browser, server: Server, shop: Shop, stream: str) -> None:
    _, token = await Tokens(shop.app.store.documents, shop.app.clock).create("seer", Role.VIEWER, unmask=True)
    page = await browser.new_page()
    await page.goto(at(server, f"/letters/{stream}#token={token}"))
    await page.get_by_role("button", name="Unmask…").click()
    await page.get_by_label("Why").fill("ticket 4711")
    await page.get_by_role("button", name="Unmask", exact=True).click()
    await expect(page.locator("#body .tree")).to_contain_text('"password": "hunter2"')
    await page.get_by_role("button", name="Mask again").click()
    await expect(page.locator("#body .tree")).to_contain_text('"password": "[redacted]"')
    await page.close()
