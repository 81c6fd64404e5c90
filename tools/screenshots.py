"""Pictures of every page of the console, light, dark and on a phone: `python -m tools.screenshots [page …]`.

They show the demonstration (`redrive demo`), as it is a moment after it began. routes.js is the list of the pages: one
that has no picture here fails.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import re
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect
from tests.servers.chromium import Chromium

ROOT = Path(__file__).parent.parent
ROUTES = ROOT / "src" / "redrive" / "console" / "routes.js"
PLACE = ROOT / "docs" / "images" / "console"
SOON = 120_000
"""Milliseconds in which a page is there."""
COLOURS = 256
LIVELY = ("new", "growing")
"""Trends of a group that has something to show; an error of Python itself is understood at a glance."""
LIVED = 20.0
"""Seconds that the demonstration runs before it is looked at: its charts and replays have something to show then."""


@dataclass(frozen=True)
class Look:
    """How a page is looked at. What is below `tallest` is cut off."""

    name: str
    width: int
    height: int
    tallest: int
    scheme: Literal["light", "dark"] = "light"
    scale: float = 1


LOOKS = (
    Look("light", 1280, 800, 1080),
    Look("dark", 1280, 800, 1080, scheme="dark"),
    Look("phone", 390, 844, 1500, scale=1.5),
)

PAGES = {
    "/": "overview",
    "/groups": "groups",
    "/groups/:id": "group",
    "/letters": "letters",
    "/letters/:id": "letter",
    "/replays": "replays",
    "/replays/new": "replay-new",
    "/replays/:id": "replay",
    "/sources": "sources",
    "/sources/:name": "source",
    "/incidents": "incidents",
    "/incidents/:id": "incident",
    "/approvals": "approvals",
    "/approvals/:id": "approval",
    "/audit": "audit",
    "/tokens": "tokens",
    "/settings": "settings",
}
"""The address of each page, as in routes.js, and the name of its pictures."""
WITHOUT = ("/dead-letter-queues/:queue",)
"""Pages of which the demonstration has none: it has no RabbitMQ."""


def routes() -> list[str]:
    """The addresses that the console knows."""
    return re.findall(r'\{ path: "([^"]+)", load:', ROUTES.read_text())


class Demonstration:
    """`redrive demo`, and its API."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.origin, _, token = url.partition("/#token=")
        self._api = httpx.AsyncClient(base_url=f"{self.origin}/api/", headers={"Authorization": f"Bearer {token}"})

    async def get(self, path: str) -> Any:
        return (await self._api.get(path, timeout=SOON / 1000)).raise_for_status().json()

    async def addresses(self) -> dict[str, str]:
        """Where each page is that shows one thing: the most telling one that there is. Empty: there is none."""
        groups = await self.get("groups?limit=50&spark=24&last=24h")
        group = max(
            groups,
            key=lambda group: (group["trend"] in LIVELY and group["error_type"] in dir(builtins), group["count"]),
        )
        replays, sources = await self.get("replays"), (await self.get("stats"))["sources"]
        return {
            "/groups/:id": f"/groups/{group['id']}",
            "/letters/:id": _first("/letters", (await self.get(f"letters?groups={group['id']}&limit=1"))["letters"]),
            "/replays/new": f"/replays/new?group={group['id']}",
            "/replays/:id": _first("/replays", sorted(replays, key=lambda replay: replay["state"] != "paused")),
            "/sources/:name": f"/sources/{max(sources, key=lambda source: sum(source['states'].values()))['source']}",
            "/incidents/:id": _first("/incidents", await self.get("incidents")),
            "/approvals/:id": _first("/approvals", await self.get("approvals")),
        }


def _first(path: str, things: list[dict[str, Any]]) -> str:
    return f"{path}/{things[0]['id']}" if things else ""


@asynccontextmanager
async def demonstration() -> AsyncIterator[Demonstration]:
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-m", "redrive", "demo", "--port", "0", "--dir", place]
        process = await asyncio.create_subprocess_exec(*words, stdout=PIPE)
        try:
            made = Demonstration(await _address(process))
            reading = asyncio.create_task(_drain(process))
            yield made
            reading.cancel()
        finally:
            process.terminate()
            await process.wait()


async def _address(process: Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        if found := re.search(r"http://\S+#token=\S+", line.decode()):
            return found[0]
    raise SystemExit("redrive demo ended before it said where it is")


async def _drain(process: Process) -> None:
    """What it tells further on is not read by anybody, and must not fill the pipe."""
    assert process.stdout is not None
    async for _ in process.stdout:
        pass


async def take(page: Page, look: Look, file: Path) -> None:
    """The page once it has all its answers, as a picture of few colours."""
    await expect(page.locator("h1")).to_be_visible(timeout=SOON)
    await expect(page.locator("main [aria-busy=true], main .skeleton")).to_have_count(0, timeout=SOON)
    tall = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": look.width, "height": max(look.height, min(tall, look.tallest))})
    await expect(page.locator("main [aria-busy=true], main .skeleton")).to_have_count(0, timeout=SOON)
    shot = Image.open(io.BytesIO(await page.screenshot(animations="disabled"))).convert("RGB")
    shot.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE).save(
        file, optimize=True
    )
    await page.set_viewport_size({"width": look.width, "height": look.height})


async def picture(browser: Browser, demo: Demonstration, look: Look, addresses: dict[str, str]) -> None:
    """All pages as they look there."""
    context = await browser.new_context(
        viewport={"width": look.width, "height": look.height},
        color_scheme=look.scheme,
        device_scale_factor=look.scale,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    page = await context.new_page()
    await page.goto(demo.url)
    await expect(page.locator("#live")).to_have_text("live", timeout=SOON)
    for route, address in addresses.items():
        await page.goto(demo.origin + ("/" if address == "/" else f"/console{address}"))
        await take(page, look, PLACE / f"{PAGES[route]}.{look.name}.png")
    await context.close()


async def main(wanted: list[str]) -> None:
    if others := {*PAGES, *WITHOUT} ^ set(routes()):
        raise SystemExit(f"tools/screenshots.py and routes.js differ in {sorted(others)}")
    PLACE.mkdir(parents=True, exist_ok=True)
    async with demonstration() as demo, async_playwright() as playwright:
        await asyncio.sleep(LIVED)
        browser = await playwright.chromium.launch(**Chromium().launch_options)
        found = {route: route for route in PAGES} | await demo.addresses()
        if missing := [PAGES[route] for route, address in found.items() if not address]:
            sys.stderr.write(f"The demonstration has nothing to show for: {', '.join(missing)}\n")
        chosen = {route: at for route, at in found.items() if at and (not wanted or PAGES[route] in wanted)}
        for look in LOOKS:
            await picture(browser, demo, look, chosen)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
