"""A login on another device with a real identity provider: the code is typed into its page by a real browser."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.async_api import Page, async_playwright

from redrive.config.settings import Access, Oidc
from redrive.remote.credentials import keep, kept
from tests.cli.served import Served, served
from tests.cli.world import SOON, Shell, World
from tests.servers.chromium import Chromium
from tests.servers.keycloak import Keycloak
from tests.servers.keycloak_realm import CLI, PASSWORD

pytestmark = pytest.mark.servers


@pytest.fixture
async def page(chromium: Chromium) -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**chromium.launch_options)
        yield await browser.new_page()
        await browser.close()


async def _read(stream: asyncio.StreamReader | None, pattern: str) -> str:
    assert stream is not None
    async with asyncio.timeout(SOON):
        while line := (await stream.readline()).decode():
            if found := re.search(pattern, line):
                return found[1]
    raise AssertionError(f"it ended without {pattern}")


async def _typed(page: Page, address: str, user: str, button: str) -> None:
    """Sign in at the page that the code leads to, and say yes or no."""
    await page.goto(address)
    await page.fill("#username", user)
    await page.fill("#password", PASSWORD)
    await page.click("#kc-login")
    await page.click(button)
    await page.wait_for_load_state()


async def _login(shell: Shell, server: Served, page: Page, user: str, button: str) -> tuple[int, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "redrive",
        "login",
        "--server",
        server.url,
        cwd=shell.place,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await _typed(page, await _read(child.stderr, r"or open (\S+)"), user, button)
        assert child.stderr is not None
        async with asyncio.timeout(SOON):
            said = (await child.stderr.read()).decode()
            return await child.wait(), said
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def test_a_person_logs_in_with_a_code_is_renewed_and_refused(
    shell: Shell, template: World, keycloak_server: Keycloak, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shell.place / "config"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    file = Path(shutil.copy(template.shell.place / "redrive.db", shell.place / "kept.db"))
    oidc = Oidc(issuer=keycloak_server.issuer, cli_client_id=CLI)
    with served(file, access=Access(oidc=oidc)) as server:
        code, said = await _login(shell, server, page, "ann", "#kc-cancel")
        assert (code, kept(server.url)) == (2, None), said
        assert "was refused on the other device" in said
        await page.context.clear_cookies()
        code, said = await _login(shell, server, page, "ann", "#kc-login")
        assert code == 0, said
        assert "admin, and may see secrets" in said
        found = kept(server.url)
        assert found is not None
        assert found[0].refresh_token
        over = replace(found[0], token="over")
        keep(server.url, over)
        assert (await asyncio.to_thread(shell.json, "stats", "--server", server.url))["total"] == 6
        keycloak_server.end_sessions("ann")
        keep(server.url, over)
        refused = await asyncio.to_thread(shell, "stats", "--server", server.url, code=2)
        assert "does not let you in" in refused.stderr
