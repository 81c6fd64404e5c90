"""People of a real Keycloak: through the page in a real browser, and with access tokens at the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect

from redrive.admin.server import Server
from redrive.config.settings import Access, Oidc
from redrive.service import Service
from redrive.telemetry.events import MessageBuried
from tests.admin.conftest import Shop
from tests.servers.keycloak import Keycloak
from tests.servers.keycloak_realm import AUDIENCE, CLI, CONSOLE, CONSOLE_SECRET, PASSWORD, SOURCES

_PATIENCE = 60_000


@pytest.fixture
async def shop(tmp_path: Path, keycloak_server: Keycloak) -> AsyncIterator[Shop]:
    """Two letters, and the people of Keycloak; roles are looked at again with every request."""
    made = Shop(tmp_path / "redrive.db")
    oidc = Oidc(
        issuer=keycloak_server.issuer,
        audience=AUDIENCE,
        client_id=CONSOLE,
        client_secret=CONSOLE_SECRET,
        cli_client_id=CLI,
        sources_claim=SOURCES,
        recheck=timedelta(milliseconds=1),
    )
    made.app.settings = replace(made.app.settings, access=Access(oidc=oidc))
    async with made.app:
        for number in range(2):
            await made.app.send("orders", {"id": number}, id=f"m{number}")
        await made.until(MessageBuried, 2)
        yield made


@pytest.fixture
async def visitor(browser: Browser, server: Server) -> AsyncIterator[Page]:
    """A browser without a token."""
    made = await browser.new_page()
    made.set_default_timeout(_PATIENCE)
    await made.goto(server.address)
    yield made
    await made.close()


async def _sign_in(page: Page, user: str) -> None:
    await page.click("#sign-in-link")
    await page.fill("#username", user)
    await page.fill("#password", PASSWORD)
    await page.click("#kc-login")


async def _logins(shop: Shop) -> list[tuple[str, str]]:
    lines = await Service(shop.app).audit()
    return [(line["actor"].split()[0], line["outcome"]) for line in lines if line["action"] == "login"]


async def test_somebody_signs_in_acts_and_signs_out(visitor: Page, shop: Shop, server: Server) -> None:
    await _sign_in(visitor, "ann")
    await expect(visitor.locator("#groups tbody tr").first).to_be_visible(timeout=_PATIENCE)
    await expect(visitor.locator("#who")).to_have_text("annadmin")
    cookies = {cookie["name"]: cookie for cookie in await visitor.context.cookies(server.address)}
    assert cookies["redrive_session"]["httpOnly"]
    assert cookies["redrive_session"]["sameSite"] == "Lax"
    assert await visitor.evaluate("document.cookie + sessionStorage.length + localStorage.length") == "00"
    assert await _logins(shop) == [("ann", "done")]

    written = await visitor.evaluate(
        """async () => {
            const { csrf } = await (await fetch("/api/me")).json();
            const body = JSON.stringify({ query: {} });
            const post = (headers) => fetch("/api/replays/plan", { method: "POST", body, headers });
            return [(await post({})).status, (await post({ "X-CSRF-Token": csrf })).status];
        }"""
    )
    assert written == [403, 200]

    async with visitor.expect_navigation(url=server.address):  # back from Keycloak, where it has ended, too
        await visitor.click("#sign-out")
    await visitor.wait_for_selector("#sign-in-link")
    assert await shop.app.store.documents.list("session") == []
    await visitor.click("#sign-in-link")
    await visitor.wait_for_selector("#username")


async def test_a_role_taken_while_the_page_is_open(
    visitor: Page, shop: Shop, server: Server, keycloak_server: Keycloak
) -> None:
    await _sign_in(visitor, "vera")
    await expect(visitor.locator("#who")).to_have_text("veraviewer", timeout=_PATIENCE)
    await asyncio.to_thread(keycloak_server.take_role, "vera", "redrive-viewer")
    try:
        await visitor.wait_for_selector("#sign-in-link")
        assert (await _logins(shop))[0] == ("vera", "refused")
    finally:
        await asyncio.to_thread(keycloak_server.give_role, "vera", "redrive-viewer")


async def test_somebody_of_the_company_without_a_role(visitor: Page, shop: Shop) -> None:
    await _sign_in(visitor, "nora")
    await expect(visitor.locator("body")).to_contain_text("'nora' has no role in Redrive", timeout=_PATIENCE)
    assert await _logins(shop) == [("nora", "refused")]


async def test_access_tokens_of_keycloak(shop: Shop, server: Server, keycloak_server: Keycloak) -> None:
    async with httpx.AsyncClient(base_url=server.address, trust_env=False, timeout=60) as http:
        ways = (await http.get("/api/login")).json()
        assert (ways["issuer"], ways["client_id"]) == (keycloak_server.issuer, CLI)
        assert ways["device_authorization_endpoint"].startswith(keycloak_server.issuer)
        tokens = await asyncio.to_thread(keycloak_server.tokens_of, "olaf")
        olaf = {"Authorization": f"Bearer {tokens['access_token']}"}
        me = (await http.get("/api/me", headers=olaf)).json()
        assert (me["name"], me["role"], me["scope"]) == ("olaf", "operator", {"sources": ["mail.*"]})
        assert (await http.get("/api/letters", headers=olaf)).json()["letters"] == []
        for other in ("id_token", "refresh_token"):
            answer = await http.get("/api/me", headers={"Authorization": f"Bearer {tokens[other]}"})
            assert answer.status_code == 401, other
        ann = {"Authorization": f"Bearer {await asyncio.to_thread(keycloak_server.access_token, 'ann')}"}
        assert (await http.get("/api/me", headers=ann)).json()["may_unmask"]
        assert len((await http.get("/api/letters", headers=ann)).json()["letters"]) == 2
