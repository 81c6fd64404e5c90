"""A real browser on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.telemetry.events import MessageBuried
from tests.admin.conftest import Shop
from tests.servers.chromium import Chromium

SOON = 60_000
"""Milliseconds: on a machine that may have much else to do."""
expect.set_options(timeout=SOON)
HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>'


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    """Three letters in two groups, one of them with an error that attacks who reads it."""
    made = Shop(tmp_path / "redrive.db")
    async with made.app:
        for number in range(3):
            headers = {"x-note": HOSTILE, "authorization": "Bearer hunter2hunter2"}
            await made.app.send(
                "orders", {"id": number, "note": HOSTILE}, id=f"m{number}", headers=headers, tenant=HOSTILE
            )
        await made.until(MessageBuried, 3)
        yield made


@pytest.fixture
async def server(shop: Shop) -> AsyncIterator[Server]:
    made = Server(shop.app, "127.0.0.1", 0)
    listening = asyncio.Event()
    task = asyncio.create_task(made.run(lambda _: listening.set()))
    await listening.wait()
    yield made
    made.stop()
    async with asyncio.timeout(20):
        await task


@pytest.fixture
async def browser(chromium: Chromium) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(**chromium.launch_options)
        yield made
        await made.close()


@pytest.fixture
async def page(browser: Browser, server: Server) -> AsyncIterator[Page]:
    """Opened with the one-time token. Whatever it complains of, and whatever it asks elsewhere, fails the test."""
    complaints: list[str] = []
    made = await browser.new_page()
    made.set_default_timeout(SOON)
    made.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("request", lambda asked: None if _ours(asked.url, server) else complaints.append(asked.url))
    await made.goto(server.url)
    await expect(made.locator("#live")).to_have_text("live", timeout=SOON)
    yield made
    await made.close()
    assert complaints == []


def at(server: Server, path: str = "/") -> str:
    """The address of a page: `at(server, "/groups")`."""
    return f"http://127.0.0.1:{server.port}" + (path if path.startswith("/#") or path == "/" else f"/console{path}")


def _ours(url: str, server: Server) -> bool:
    return url.startswith(f"http://127.0.0.1:{server.port}/")


async def token_of(shop: Shop, role: Role, name: str = "") -> str:
    return (await Tokens(shop.app.store.documents, shop.app.clock).create(name or role, role))[1]


async def page_of(browser: Browser, server: Server, shop: Shop, role: Role, path: str, name: str = "") -> Page:
    """Opened by somebody else, with a token of that role."""
    made = await browser.new_page()
    made.set_default_timeout(SOON)
    await made.goto(at(server, f"{path}#token={await token_of(shop, role, name)}"))
    return made
