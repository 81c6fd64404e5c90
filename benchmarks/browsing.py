"""Pages of the console in Chromium: how long until one is of use, and ten that are open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright
from tests.servers.chromium import Chromium

from benchmarks.console_server import Listening
from benchmarks.harness import say

_PATIENCE = 60_000  # milliseconds
OPENED: dict[str, tuple[str, tuple[str, ...], float]] = {
    "overview": ("/", ("#totals .stat", "#over-time canvas", "#groups tbody tr"), 1000.0),
    "groups": ("/console/groups", ("#groups tbody tr",), 1000.0),
    "letters": ("/console/letters?sources=shop.orders&text=charged", ("#letters tbody tr",), 1000.0),
    "letter": ("/console/letters/{letter}", ("#body", "#about"), 300.0),
}
"""Each page by its name: its address, what is to be seen before it is of use, and the milliseconds it may take."""


def opened(listening: Listening, name: str, letter: str, times: int) -> list[float]:
    """Milliseconds from asking for the page until it is of use, each time from another one; scripts are cached."""
    path, wanted, _ = OPENED[name]
    took = []
    with _browser() as browser:
        page = _signed_in(browser, listening)
        for _ in range(times + 1):
            page.goto(f"{listening.url}/console/tokens")
            page.locator("#live").get_by_text("live", exact=True).wait_for()
            began = time.perf_counter()
            page.goto(listening.url + path.format(letter=letter))
            for part in wanted:
                page.locator(part).first.wait_for()
            took.append((time.perf_counter() - began) * 1e3)
            say(f"  {name} {took[-1]:.0f} ms")
    return took[1:]  # of the first the scripts are read anew


@contextmanager
def idle_consoles(listening: Listening, count: int) -> Iterator[None]:
    """So many overviews that are open, each in a window of its own, once all of them show what there is."""
    with _browser() as browser:
        pages = [_signed_in(browser, listening) for _ in range(count)]
        for page in pages:
            page.locator("#totals .stat").first.wait_for()
            page.locator("#live").get_by_text("live", exact=True).wait_for()
        yield


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**Chromium().launch_options)
        yield browser
        browser.close()


def _signed_in(browser: Browser, listening: Listening) -> Page:
    page = browser.new_context().new_page()
    page.set_default_timeout(_PATIENCE)
    page.goto(f"{listening.url}/#token={listening.admin}")
    page.locator("#live").get_by_text("live", exact=True).wait_for()
    return page
