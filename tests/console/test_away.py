"""A broker that is down takes nothing from the overview but its own word."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from redrive.registry import open_transport
from tests.admin.conftest import Shop
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis

pytestmark = pytest.mark.servers
LOOKED = 60_000  # milliseconds; the page looks every 15 seconds, on a machine that may have much else to do


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
    await expect(page.locator("#backends")).to_contain_text("transports.mail")
    await expect(page.locator("#away")).to_be_empty()
    broker.kill9()
    await expect(page.locator("#away")).to_contain_text("transports.mail: redis://127.0.0.1:", timeout=LOOKED)
    await shop.app.send("orders", {"id": 8}, id="m8")  # the worker of the page's server buries it
    await expect(page.locator("#totals .stat").first).to_contain_text("Buried4", timeout=LOOKED)
    await expect(page.locator("#groups tbody tr")).to_have_count(2)
    broker.start()
    await expect(page.locator("#away")).to_be_empty(timeout=LOOKED)
