"""A broker that is down takes nothing from the page but its own numbers."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from redrive.admin.server import Server
from redrive.errors import StoreUnavailable
from redrive.registry import open_transport
from tests.admin.conftest import Shop
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis

pytestmark = pytest.mark.servers
SOON = 30_000  # milliseconds; the page looks every two seconds, on a machine that may have much else to do


@pytest.fixture
def broker(shop: Shop, start_server: StartsServer) -> Redis:
    """Of a second transport; before the page is opened."""
    server = start_server(Redis)
    url = f"redis://127.0.0.1:{server.port}/0?checks=off"
    shop.app.use("mail", open_transport(url, clock=shop.app.clock, lease=shop.app.settings.lease))
    return server


async def test_a_broker_that_is_down_is_named_and_the_rest_is_shown_and_goes_on(
    broker: Redis, page: Page, shop: Shop
) -> None:
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    await expect(page.locator("#away-panel")).to_be_hidden(timeout=SOON)
    broker.kill9()
    await expect(page.locator("#away")).to_contain_text("transports.mail: redis://127.0.0.1:", timeout=SOON)
    await expect(page.locator("#live")).to_have_text("live, as far as it answers", timeout=SOON)
    await shop.app.send("orders", {"id": 8}, id="m8")  # the worker of the page's server buries it
    await expect(page.locator("#letters tr")).to_have_count(4, timeout=SOON)
    await expect(page.locator('.tile[data-state="pending"] .tile-count')).to_have_text("4", timeout=SOON)
    await expect(page.locator("#queues")).to_contain_text("not known", timeout=SOON)
    broker.start()
    await expect(page.locator("#away-panel")).to_be_hidden(timeout=SOON)
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)


async def test_a_store_that_is_down_leaves_the_last_numbers_and_says_so(
    browser: Browser, server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await browser.new_page()
    await page.goto(server.url)
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)

    async def away(*arguments: object, **options: object) -> None:
        raise StoreUnavailable("redrive.db", "the disk is full")

    with monkeypatch.context() as broken:
        for name in ("tallies", "search", "groups"):
            broken.setattr(shop.app.store.letters, name, away)
        await expect(page.locator("#away")).to_contain_text("store: redrive.db is unavailable", timeout=SOON)
        await expect(page.locator('.tile[data-state="pending"] .tile-count')).to_have_text("–", timeout=SOON)
        await expect(page.locator("#letters tr")).to_have_count(3, timeout=SOON)
        await expect(page.locator("#away")).to_contain_text(
            "the letters: redrive.db is unavailable: the disk is full", timeout=SOON
        )
    await expect(page.locator("#away-panel")).to_be_hidden(timeout=SOON)
    await expect(page.locator('.tile[data-state="pending"] .tile-count')).to_have_text("3", timeout=SOON)
    await page.close()
