"""People who follow changes with a session: the stream ends with their login, and with no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from litestar import Litestar

from redrive.service.watcher import Watcher
from tests.admin.conftest import Shop
from tests.admin.issuing import SmallIssuer, small_issuer
from tests.admin.signing_in import Browser, Later, api_of, trail


@pytest.fixture
def issuer() -> Iterator[SmallIssuer]:
    with small_issuer() as made:
        yield made


@pytest.fixture
def clock() -> Later:
    return Later()


@pytest.fixture
async def api(shop: Shop, issuer: SmallIssuer, clock: Later) -> AsyncIterator[Litestar]:
    async with api_of(shop, issuer.settings(), clock) as made:
        yield made


@pytest.fixture
async def browser(api: Litestar, issuer: SmallIssuer) -> AsyncIterator[Browser]:
    made = Browser(api, issuer)
    async with made.http:
        yield made


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what it waits for is a fact, of which nobody sends a signal
            await asyncio.sleep(0.01)


async def _following(browser: Browser, watcher: Watcher) -> asyncio.Task[httpx.Response]:
    """A page that is open: its answer comes when the stream is over."""
    before = len(watcher.listeners)
    task = asyncio.create_task(browser.http.get("/api/events"))
    await _until(lambda: len(watcher.listeners) > before or task.done())
    assert not task.done()
    return task


async def test_a_stream_ends_with_its_login_and_not_with_another_of_the_same_person(
    browser: Browser, api: Litestar, issuer: SmallIssuer
) -> None:
    other = Browser(api, issuer)
    async with other.http:
        await browser.sign_in()
        await other.sign_in()
        stays = await _following(browser, api.state.watcher)
        leaves = await _following(other, api.state.watcher)
        assert (await other.http.post("/logout", headers=await other.csrf())).status_code == 200
        async with asyncio.timeout(60):
            text = (await leaves).text
        assert "event: bye" in text
        assert "login is over" in text
        assert not stays.done()
        stays.cancel()
        await asyncio.gather(stays, return_exceptions=True)


async def test_a_role_that_is_taken_ends_the_stream_and_is_in_the_trail(
    browser: Browser, api: Litestar, issuer: SmallIssuer, clock: Later, shop: Shop
) -> None:
    await browser.sign_in()
    stream = await _following(browser, api.state.watcher)
    at = int((clock.now() + timedelta(minutes=6)).timestamp())
    browser.answers(roles=[], nonce=None, iat=at, exp=at + 300)
    clock.ahead += timedelta(minutes=6)
    async with asyncio.timeout(60):
        assert "event: bye" in (await stream).text
    line = (await trail(shop))[0]
    assert line["outcome"] == "refused"
    assert "no role" in line["detail"]


async def test_another_role_ends_the_stream(browser: Browser, api: Litestar, issuer: SmallIssuer, clock: Later) -> None:
    await browser.sign_in()
    stream = await _following(browser, api.state.watcher)
    at = int((clock.now() + timedelta(minutes=6)).timestamp())
    browser.answers(roles=["redrive-viewer"], nonce=None, iat=at, exp=at + 300)
    clock.ahead += timedelta(minutes=6)
    async with asyncio.timeout(60):
        assert "you are viewer now" in (await stream).text


async def test_a_look_that_took_long_does_not_put_off_the_next_for_hours(
    browser: Browser, api: Litestar, issuer: SmallIssuer, clock: Later, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browser.sign_in()
    store: Any = shop.app.store
    look, looked = store.pulse, asyncio.Event()

    async def slow() -> object:
        if not looked.is_set() and api.state.watcher.listeners:
            at = int((clock.now() + timedelta(minutes=6)).timestamp())
            browser.answers(roles=[], nonce=None, iat=at, exp=at + 300)
            clock.ahead += timedelta(minutes=6)
            looked.set()
        return await look()

    monkeypatch.setattr(store, "pulse", slow)
    stream = await _following(browser, api.state.watcher)
    async with asyncio.timeout(60):
        await looked.wait()
        assert "event: bye" in (await stream).text


async def test_an_identity_provider_that_is_away_ends_no_stream(
    browser: Browser, api: Litestar, issuer: SmallIssuer, clock: Later
) -> None:
    await browser.sign_in()
    stream = await _following(browser, api.state.watcher)
    asked = issuer.asked.count("/token")
    issuer.answers["/token"] = lambda: (503, {})
    clock.ahead += timedelta(minutes=6)
    # it is asked again: the first time changed nothing
    await _until(lambda: issuer.asked.count("/token") >= asked + 2 or stream.done())
    assert not stream.done()
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)


async def test_a_page_that_leaves_while_it_is_rechecked_does_not_lose_the_new_refresh_token(
    browser: Browser, issuer: SmallIssuer, clock: Later, shop: Shop
) -> None:
    await browser.sign_in()
    clock.ahead += timedelta(minutes=6)
    at = int(clock.now().timestamp())
    browser.answers(nonce=None, refresh="refresh-2", iat=at, exp=at + 300)
    asked, held, answers = issuer.asked.count("/token"), threading.Event(), issuer.answers["/token"]
    issuer.answers["/token"] = lambda: answers() if held.wait(60) else (503, {})
    leaves = asyncio.create_task(browser.http.get("/api/me"))
    await _until(lambda: issuer.asked.count("/token") > asked)
    (session,) = await shop.app.store.documents.list("session")
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    assert leaves.cancelled()
    held.set()
    async with asyncio.timeout(60):
        while (await shop.app.store.documents.list("session"))[0].version == session.version:
            pass  # each look is a turn of the loop
    clock.ahead += timedelta(minutes=6)
    at = int(clock.now().timestamp())
    browser.answers(nonce=None, refresh="refresh-3", iat=at, exp=at + 300)
    assert (await browser.http.get("/api/me")).status_code == 200
    assert issuer.forms[-1]["refresh_token"] == "refresh-2"
