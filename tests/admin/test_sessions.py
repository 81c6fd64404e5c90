"""People who sign in with a browser: in by PKCE, kept on the server, rechecked, and out again."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from litestar import Litestar

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.config.settings import Oidc
from tests.admin.asking import asking
from tests.admin.conftest import Shop
from tests.admin.issuing import SmallIssuer, small_issuer
from tests.admin.signing_in import Browser, Later, api_of, trail

PLAN = "/api/replays/plan"


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


async def test_a_login_is_a_cookie_that_no_script_reads(browser: Browser, issuer: SmallIssuer, shop: Shop) -> None:
    await browser.begin("/#group=1")
    browser.answers()
    answer = await browser.come_back()
    assert (answer.status_code, answer.headers["location"]) == (303, "/#group=1")
    cookie = next(value for value in answer.headers.get_list("set-cookie") if value.startswith("redrive_session="))
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "Path=/" in cookie
    assert "Secure" not in cookie  # this is HTTP
    me = (await browser.http.get("/api/me")).json()
    assert (me["name"], me["role"], me["via"]) == ("olaf", "operator", "person")
    assert me["csrf"]
    (line,) = await trail(shop)
    assert (line["actor"], line["outcome"]) == (f"olaf ({issuer.url}#7)", "done")


async def test_the_code_is_redeemed_with_the_verifier_of_the_challenge(browser: Browser, issuer: SmallIssuer) -> None:
    await browser.sign_in()
    assert browser.asked["code_challenge_method"] == "S256"
    assert browser.asked["redirect_uri"] == "http://redrive.test/login/callback"
    (form,) = issuer.forms
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == browser.asked["code_challenge"]
    assert form["redirect_uri"] == browser.asked["redirect_uri"]


async def test_behind_a_proxy_with_tls_the_cookie_is_secure(shop: Shop, issuer: SmallIssuer, clock: Later) -> None:
    oidc = issuer.settings(console="https://redrive.example.com/")
    async with api_of(shop, oidc, clock) as api, asking(api) as http:
        browser = Browser(api, issuer)
        browser.http = http
        answer = await browser.begin()
        assert browser.asked["redirect_uri"] == "https://redrive.example.com/login/callback"
        assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("to", ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a\nb", "/ä", ""])
async def test_a_login_ends_on_this_server(browser: Browser, to: str) -> None:
    await browser.begin(to)
    browser.answers()
    assert (await browser.come_back()).headers["location"] == "/"


async def test_a_write_needs_more_than_the_cookie(browser: Browser) -> None:
    await browser.sign_in()
    right = await browser.csrf()
    wrong: list[dict[str, str]] = [
        {},
        {"X-CSRF-Token": "guessed"},
        {"X-CSRF-Token": ""},
        {**right, "Sec-Fetch-Site": "cross-site"},
        {**right, "Sec-Fetch-Site": "same-site"},
        {**right, "Origin": "http://evil.example"},
        {**right, "Origin": "null"},
        {**right, "Origin": "https://redrive.test"},
    ]
    for headers in wrong:
        answer = await browser.http.post(PLAN, json={"query": {}}, headers=headers)
        assert answer.status_code == 403, headers
    fine = [right, {**right, "Sec-Fetch-Site": "same-origin", "Origin": "http://redrive.test"}]
    for headers in fine:
        answer = await browser.http.post(PLAN, json={"query": {}}, headers=headers)
        assert answer.status_code == 200, answer.text


async def test_a_token_beside_the_cookie_writes_as_the_token(browser: Browser, shop: Shop) -> None:
    await browser.sign_in(roles=["redrive-viewer"])
    _, text = await Tokens(shop.app.store.documents, shop.app.clock).create("ci", Role.OPERATOR)
    bearer = {"Authorization": f"Bearer {text}"}
    assert (await browser.http.post(PLAN, json={"query": {}}, headers=bearer)).status_code == 200
    me = (await browser.http.get("/api/me", headers=bearer)).json()
    assert (me["name"], me["csrf"]) == ("ci", None)


async def test_two_servers_share_a_session_and_its_end(
    browser: Browser, shop: Shop, issuer: SmallIssuer, clock: Later
) -> None:
    await browser.sign_in()
    headers = await browser.csrf()
    async with api_of(shop, issuer.settings(), clock) as other, asking(other) as there:
        there.cookies = browser.http.cookies
        assert (await there.get("/api/me")).json()["name"] == "olaf"
        assert (await there.post("/logout")).status_code == 403
        cookies = dict(there.cookies)
        answer = await there.post("/logout", headers=headers)
        assert answer.status_code == 200
        assert answer.json()["at_issuer"].startswith(f"{issuer.url}/end?client_id=")
        assert "/revoke" in issuer.asked
        assert issuer.forms[-1]["token"] == "refresh-1"
    browser.http.cookies.update(cookies)  # who has kept the cookie has nothing
    answer = await browser.http.get("/api/me")
    assert answer.status_code == 401
    assert "ended" in answer.json()["error"]
    assert [line["actor"] for line in await trail(shop, "logout")] == [f"olaf ({issuer.url}#7)"]
    assert (await browser.http.post("/logout", headers=headers)).status_code == 200


async def test_a_new_login_ends_the_one_before(browser: Browser, api: Litestar) -> None:
    await browser.sign_in()
    before = browser.http.cookies["redrive_session"]
    await browser.sign_in()
    async with asking(api) as other:
        other.cookies.set("redrive_session", before)
        assert (await other.get("/api/me")).status_code == 401


async def test_a_session_ends(browser: Browser, clock: Later, shop: Shop, issuer: SmallIssuer) -> None:
    await browser.sign_in()
    clock.ahead = timedelta(hours=12, seconds=1)
    assert (await browser.http.get("/api/me")).status_code == 401
    assert await shop.app.store.documents.list("session") == []


async def test_sessions_that_are_over_are_swept_by_the_next_login(
    browser: Browser, clock: Later, shop: Shop, api: Litestar, issuer: SmallIssuer
) -> None:
    for _ in range(5):
        other = Browser(api, issuer)
        async with other.http:
            await other.sign_in()
    clock.ahead = timedelta(hours=13)
    later = int((clock.now()).timestamp())
    await browser.sign_in(iat=later, exp=later + 300)  # it begins anywhere, and reaches all of so few
    assert len(await shop.app.store.documents.list("session")) == 1


async def test_without_a_refresh_token_a_session_lasts_as_long_as_the_id_token(browser: Browser, clock: Later) -> None:
    await browser.sign_in(refresh=None)
    clock.ahead = timedelta(seconds=200)
    assert (await browser.http.get("/api/me")).status_code == 200
    clock.ahead = timedelta(seconds=301)
    assert (await browser.http.get("/api/me")).status_code == 401


def _later(clock: Later, issuer: SmallIssuer, by: timedelta = timedelta(minutes=6)) -> dict[str, Any]:
    """Let time pass; the claims of a token of then."""
    clock.ahead += by
    now = int(clock.now().timestamp())
    return {"iat": now, "exp": now + 300}


async def test_a_role_that_is_changed_while_a_page_is_open(browser: Browser, clock: Later, issuer: SmallIssuer) -> None:
    await browser.sign_in()
    browser.answers(roles=["redrive-viewer"], nonce=None, refresh="refresh-2", **_later(clock, issuer))
    assert (await browser.http.get("/api/me")).json()["role"] == "viewer"
    assert issuer.forms[-1]["refresh_token"] == "refresh-1"
    browser.answers(roles=["redrive-admin"], nonce=None, **_later(clock, issuer))
    assert (await browser.http.get("/api/me")).json()["role"] == "admin"
    assert issuer.forms[-1]["refresh_token"] == "refresh-2"


async def test_a_role_that_is_taken_ends_the_session(
    browser: Browser, clock: Later, issuer: SmallIssuer, shop: Shop
) -> None:
    await browser.sign_in()
    browser.answers(roles=[], nonce=None, **_later(clock, issuer))
    assert (await browser.http.get("/api/me")).status_code == 401
    line = (await trail(shop))[0]
    assert (line["outcome"], line["actor"]) == ("refused", f"olaf ({issuer.url}#7)")
    assert "no role" in line["detail"]
    assert (await browser.http.get("/api/me")).status_code == 401
    assert await shop.app.store.documents.list("session") == []


@pytest.mark.parametrize("answer", [(400, {"error": "invalid_grant"}), (200, {"access_token": "x"})])
async def test_who_is_signed_out_at_the_identity_provider_is_out_here(
    browser: Browser, clock: Later, issuer: SmallIssuer, answer: tuple[int, Any]
) -> None:
    await browser.sign_in()
    issuer.answers["/token"] = lambda: answer
    _later(clock, issuer)
    assert (await browser.http.get("/api/me")).status_code == 401


async def test_a_refresh_that_says_somebody_else_ends_the_session(
    browser: Browser, clock: Later, issuer: SmallIssuer
) -> None:
    await browser.sign_in()
    browser.answers(sub="8", nonce=None, **_later(clock, issuer))
    assert (await browser.http.get("/api/me")).status_code == 401


async def test_while_the_identity_provider_is_away_a_recheck_waits_for_it(
    browser: Browser, clock: Later, issuer: SmallIssuer
) -> None:
    await browser.sign_in()
    claims = _later(clock, issuer)
    issuer.stop()
    for _ in range(2):
        answer = await browser.http.get("/api/me")
        assert answer.status_code == 503
        assert "identity provider" in answer.json()["error"]
    issuer.start()
    clock.ahead += timedelta(seconds=11)
    browser.answers(nonce=None, **claims)
    assert (await browser.http.get("/api/me")).status_code == 200


async def test_one_of_many_requests_asks_again(browser: Browser, clock: Later, issuer: SmallIssuer) -> None:
    await browser.sign_in()
    browser.answers(nonce=None, **_later(clock, issuer))
    before = issuer.asked.count("/token")
    answers = await asyncio.gather(*(browser.http.get("/api/me") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200}
    assert issuer.asked.count("/token") == before + 1


REFUSED: dict[str, tuple[dict[str, Any], dict[str, str | None], int, str]] = {
    "another state": ({}, {"state": "other"}, 401, "not begun in this browser"),
    "no state": ({}, {"state": None}, 401, "not begun in this browser"),
    "refused there": ({}, {"error": "access_denied", "code": None}, 401, "access_denied"),
    "another issuer": ({}, {"iss": "https://evil.example"}, 401, "another identity provider"),
    "another nonce": ({"nonce": "other"}, {}, 401, "another login"),
    "no nonce": ({"nonce": None}, {}, 401, "another login"),
    "expired": ({"exp": time.time() - 3600}, {}, 401, "expired"),
    "for another client": ({"azp": "shop"}, {}, 401, "another client"),
    "no role": ({"roles": ["staff"]}, {}, 403, "no role"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_login_that_is_refused_is_explained_and_written_down(what: str, browser: Browser, shop: Shop) -> None:
    claims, changed, status, why = REFUSED[what]
    await browser.begin()
    browser.answers(**claims)
    answer = await browser.come_back(**changed)
    assert answer.status_code == status
    assert why in answer.text
    assert "redrive_session" not in browser.http.cookies
    (line,) = await trail(shop)
    assert line["outcome"] == "refused"
    assert why in line["detail"]


async def test_what_a_stranger_says_is_no_html(browser: Browser) -> None:
    await browser.begin()
    answer = await browser.come_back(error="<script>alert(1)</script>")
    assert "<script>" not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_a_code_that_is_refused(browser: Browser, issuer: SmallIssuer) -> None:
    await browser.begin()
    issuer.answers["/token"] = lambda: (400, {"error": "invalid_grant"})
    answer = await browser.come_back()
    assert answer.status_code == 401
    assert "invalid_grant" in answer.text


async def test_a_login_without_its_identity_provider(browser: Browser, issuer: SmallIssuer) -> None:
    issuer.stop()
    answer = await browser.http.get("/login")
    assert answer.status_code == 503
    assert "identity provider" in answer.text


async def test_a_database_tells_nobody_how_to_be_somebody(browser: Browser, shop: Shop) -> None:
    await browser.sign_in(refresh="a-refresh-token-to-be-kept")
    id = browser.http.cookies["redrive_session"]
    file = shop.app.settings.store.removeprefix("sqlite:///")
    with sqlite3.connect(file) as database:
        dumped = "\n".join(database.iterdump())
    database.close()
    assert '"actor"' in dumped
    assert id not in dumped
    assert "a-refresh-token-to-be-kept" not in dumped


async def test_without_people_nobody_is_sent_anywhere(shop: Shop, clock: Later) -> None:
    async with api_of(shop, Oidc(), clock) as api, asking(api) as http:
        assert (await http.get("/api/login")).json()["people"] is False
        assert (await http.get("/login")).status_code == 404
        assert (await http.get("/login/callback")).status_code == 404
        assert (await http.post("/logout")).json() == {"at_issuer": None}
        http.cookies.set("redrive_session", "x")
        assert (await http.get("/api/me")).status_code == 401
