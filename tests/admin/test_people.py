"""People who show access tokens: a right one comes in as what its claims say, and everything else stays outside."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from joserfc.jwk import ECKey, RSAKey
from litestar import Litestar
from msgspec.structs import replace

from redrive.access.actors import Role
from redrive.access.issuer import Issuer
from redrive.access.tokens import Tokens
from tests.admin.asking import asking
from tests.admin.conftest import Shop
from tests.admin.issuing import SmallIssuer, small_issuer
from tests.admin.signing_in import Later, api_of, trail

Asks = Callable[[str | None], httpx.AsyncClient]


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
async def asks(api: Litestar) -> AsyncIterator[Asks]:
    made: list[httpx.AsyncClient] = []

    def with_(token: str | None) -> httpx.AsyncClient:
        made.append(asking(api, token))
        return made[-1]

    yield with_
    for one in made:
        await one.aclose()


async def test_a_person_comes_in_as_what_its_claims_say(issuer: SmallIssuer, asks: Asks) -> None:
    answer = await asks(issuer.token()).get("/api/me")
    assert answer.json() == {
        "id": f"{issuer.url}#7",
        "name": "olaf",
        "role": "operator",
        "via": "person",
        "scope": {},
        "may_unmask": False,
        "csrf": None,
    }


async def test_the_command_line_learns_how_people_sign_in(issuer: SmallIssuer, asks: Asks) -> None:
    assert (await asks(None).get("/api/login")).json() == {
        "people": True,
        "issuer": issuer.url,
        "client_id": "the-cli",
        "device_authorization_endpoint": f"{issuer.url}/device",
        "token_endpoint": f"{issuer.url}/token",
        "scopes": ["openid", "profile", "email"],
        "login": "/login",
        "signed_in": False,
    }


_LATER, _LONG_AGO = time.time() + 3600, time.time() - 3600
TAMPERED: dict[str, tuple[Callable[[SmallIssuer], str], str]] = {
    "alg none": (lambda i: i.unsigned(), "not signed in a way"),
    "HS256 with the public key": (lambda i: i.signed_with_public_key(), "not signed in a way"),
    "another key under its id": (lambda i: i.token(key=RSAKey.generate_key(2048)), "signature"),
    "an algorithm of other keys": (
        lambda i: i.token({"alg": "ES256"}, ECKey.generate_key("P-256")),
        "signature",
    ),
    "unknown kid": (lambda i: i.token({"kid": "other"}), "does not have"),
    "claims changed afterwards": (lambda i: _swapped(i.token(), i.token(roles=["redrive-admin"])), "signature"),
    "wrong audience": (lambda i: i.token(aud="shop"), "for somebody else"),
    "no audience": (lambda i: i.token(aud=None), "for somebody else"),
    "wrong issuer": (lambda i: i.token(iss="https://evil.example"), "somebody else issued"),
    "no issuer": (lambda i: i.token(iss=None), "iss"),
    "expired": (lambda i: i.token(exp=_LONG_AGO), "expired"),
    "never expires": (lambda i: i.token(exp=None), "exp"),
    "expires in words": (lambda i: i.token(exp="tomorrow"), "exp"),
    "not yet valid": (lambda i: i.token(nbf=_LATER), "not valid yet"),
    "from the future": (lambda i: i.token(iat=_LATER), "future"),
    "no sub": (lambda i: i.token(sub=None), "names nobody"),
    "an empty sub": (lambda i: i.token(sub=""), "names nobody"),
    "a sub that is no text": (lambda i: i.token(sub=7), "names nobody"),
    "a logout token": (lambda i: i.token({"typ": "logout+jwt"}), "another kind"),
    "a critical header that nobody knows": (lambda i: i.token() and _critical(i), "signature"),
    "no JSON": (lambda i: "a.b.c", "no token"),
    "nothing": (lambda i: "..", "no token"),
    "not ASCII": (lambda i: "ä.ö.ü".encode().decode("latin-1"), "no token"),
    "huge": (lambda i: "a" * 20_000 + ".b.c", "too long"),
    "ten thousand roles": (lambda i: i.token(roles=[f"role-{n}" for n in range(10_000)]), "fewer roles or groups"),
    "a sub that cannot be shown": (lambda i: i.token(sub="7\n8", preferred_username=None), "cannot be shown"),
    "such a sub, for somebody else": (lambda i: i.token(sub="7\n8", aud="shop"), "cannot be shown"),
    "half a character as sub": (lambda i: i.signed(json.dumps(i.claims(sub="\ud800"))), "cannot be shown"),
    "claims deeper than anybody reads": (lambda i: i.signed('{"a":' + "[" * 5000 + "]" * 5000 + "}"), "signature"),
}


def _swapped(signed: str, other: str) -> str:
    header, _, signature = signed.split(".")
    return f"{header}.{other.split('.')[1]}.{signature}"


def _critical(issuer: SmallIssuer) -> str:
    header, claims, signature = issuer.token().split(".")
    known = json.loads(base64.urlsafe_b64decode(header + "=="))
    changed = json.dumps({**known, "crit": ["exp"], "exp": 1}).encode()
    return f"{base64.urlsafe_b64encode(changed).rstrip(b'=').decode()}.{claims}.{signature}"


@pytest.mark.parametrize("what", TAMPERED)
async def test_a_tampered_token_is_refused_and_written_down(
    what: str, issuer: SmallIssuer, asks: Asks, shop: Shop
) -> None:
    make, why = TAMPERED[what]
    answer = await asks(None).get("/api/letters", headers={b"Authorization": f"Bearer {make(issuer)}".encode()})
    assert answer.status_code == 401
    assert why in answer.json()["error"]
    assert answer.headers["www-authenticate"] == 'Bearer realm="redrive", error="invalid_token"'
    (line,) = await trail(shop)
    assert line["outcome"] == "refused"
    assert why in line["detail"]


async def test_a_login_with_a_token_is_written_down_once(issuer: SmallIssuer, asks: Asks, shop: Shop) -> None:
    for token in (issuer.token(sid="a"), issuer.token(sid="a", jti="2"), issuer.token(sid="b")):
        assert (await asks(token).get("/api/letters")).status_code == 200
    assert [line["outcome"] for line in await trail(shop)] == ["done", "done"]


async def test_what_anybody_can_send_does_not_fill_the_trail(issuer: SmallIssuer, asks: Asks, shop: Shop) -> None:
    client = asks(issuer.unsigned())
    for _ in range(20):
        assert (await client.get("/api/letters")).status_code == 401
    assert len(await trail(shop)) == 5  # the 1st, 2nd, 4th, 8th and 16th


async def test_clocks_may_be_a_little_apart(issuer: SmallIssuer, asks: Asks) -> None:
    now = time.time()
    assert (await asks(issuer.token(exp=now - 10)).get("/api/me")).status_code == 200
    assert (await asks(issuer.token(nbf=now + 20, iat=now + 20)).get("/api/me")).status_code == 200


async def test_a_person_without_a_role_hears_so(issuer: SmallIssuer, asks: Asks, shop: Shop) -> None:
    answer = await asks(issuer.token(roles=["admin", "staff"])).get("/api/me")
    assert answer.status_code == 403
    assert "no role" in answer.json()["error"]
    (line,) = await trail(shop)
    assert line["actor"] == f"olaf ({issuer.url}#7)"


async def test_a_role_is_still_a_role(issuer: SmallIssuer, asks: Asks) -> None:
    viewer = asks(issuer.token(roles=["redrive-viewer"]))
    assert (await viewer.post("/api/letters/retry", json={"ids": []})).status_code == 403
    assert (await viewer.get("/api/tokens")).status_code == 403


async def test_a_new_key_is_known_at_once(issuer: SmallIssuer, asks: Asks, clock: Later) -> None:
    assert (await asks(issuer.token()).get("/api/me")).status_code == 200
    old = issuer.token()
    issuer.rotate("second")
    clock.ahead = timedelta(seconds=11)
    assert (await asks(issuer.token()).get("/api/me")).status_code == 200
    assert issuer.asked.count("/jwks") == 2
    assert (await asks(old).get("/api/me")).status_code == 401  # a key that was withdrawn is good for nothing


async def test_unknown_keys_make_nobody_ask_in_a_loop(issuer: SmallIssuer, asks: Asks, clock: Later) -> None:
    for number in range(20):
        assert (await asks(issuer.token({"kid": str(number)})).get("/api/me")).status_code == 401
    assert issuer.asked.count("/jwks") == 1
    clock.ahead = timedelta(seconds=11)
    await asyncio.gather(*(asks(issuer.token({"kid": str(number)})).get("/api/me") for number in range(20)))
    assert issuer.asked.count("/jwks") == 2


async def test_a_withdrawn_key_is_noticed_without_a_new_one(issuer: SmallIssuer, asks: Asks, clock: Later) -> None:
    now = int(time.time())
    token = issuer.token(exp=now + 3600)
    assert (await asks(token).get("/api/me")).status_code == 200
    issuer.rotate("second")
    clock.ahead = timedelta(minutes=6)
    assert (await asks(token).get("/api/me")).status_code == 401


async def test_without_its_keys_people_wait_and_tokens_go_on(
    issuer: SmallIssuer, asks: Asks, shop: Shop, clock: Later
) -> None:
    _, text = await Tokens(shop.app.store.documents, shop.app.clock).create("ci", Role.VIEWER)
    token = issuer.token()
    issuer.stop()
    answer = await asks(token).get("/api/me")
    assert answer.status_code == 503
    assert answer.json()["error"].startswith(f"the identity provider {issuer.url} is unavailable")
    assert answer.headers["retry-after"]
    assert (await asks(text).get("/api/me")).status_code == 200
    assert (await asks(None).get("/api/login")).status_code == 503
    issuer.start()
    clock.ahead = timedelta(seconds=11)
    assert (await asks(token).get("/api/me")).status_code == 200


async def test_keys_are_good_for_an_hour_while_it_is_away(issuer: SmallIssuer, asks: Asks, clock: Later) -> None:
    token = issuer.token(exp=time.time() + 7200)
    assert (await asks(token).get("/api/me")).status_code == 200
    issuer.stop()
    clock.ahead = timedelta(minutes=50)
    assert (await asks(token).get("/api/me")).status_code == 200
    clock.ahead = timedelta(minutes=61)
    assert (await asks(token).get("/api/me")).status_code == 503


async def test_whoever_asks_first_and_leaves_keeps_nobody_out(issuer: SmallIssuer, clock: Later) -> None:
    people = Issuer(issuer.settings(), clock)
    issuer.gate.clear()
    leaves = asyncio.create_task(people.addresses())
    assert await asyncio.to_thread(issuer.is_asked.wait, 30)
    leaves.cancel()
    await asyncio.wait({leaves})
    issuer.gate.set()
    try:
        assert (await people.addresses()).issuer == issuer.url
    finally:
        await people.aclose()


async def test_while_its_keys_are_slow_tokens_go_on(issuer: SmallIssuer, asks: Asks, shop: Shop) -> None:
    _, text = await Tokens(shop.app.store.documents, shop.app.clock).create("ci", Role.VIEWER)
    issuer.gate.clear()
    waiting = asyncio.create_task(asks(issuer.token()).get("/api/me"))
    try:
        assert (await asks(text).get("/api/me")).status_code == 200
        assert not waiting.done()
    finally:
        issuer.gate.set()
    assert (await waiting).status_code == 200


BROKEN: dict[str, tuple[str, tuple[int, Any]]] = {
    "no JSON": ("/jwks", (200, b"<html>")),
    "an error": ("/jwks", (500, {})),
    "no keys": ("/jwks", (200, {"keys": []})),
    "keys that are none": ("/jwks", (200, {"keys": [1, {"kty": "RSA"}, {"kty": "oct", "k": "c2VjcmV0"}]})),
    "no list": ("/jwks", (200, {"keys": "first"})),
    "huge": ("/jwks", (200, b'{"keys": "' + b"x" * (2 << 20) + b'"}')),
    "no discovery": ("/.well-known/openid-configuration", (404, {})),
    "an empty discovery": ("/.well-known/openid-configuration", (200, {})),
    "another name": ("/.well-known/openid-configuration", (200, {"issuer": "https://evil.example"})),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_an_identity_provider_that_answers_nonsense_is_away(what: str, issuer: SmallIssuer, asks: Asks) -> None:
    path, answer = BROKEN[what]
    issuer.answers[path] = lambda: answer
    assert (await asks(issuer.token()).get("/api/me")).status_code == 503


@pytest.mark.parametrize("name", ["jwks_uri", "token_endpoint", "authorization_endpoint"])
async def test_addresses_without_tls_are_not_asked(name: str, issuer: SmallIssuer, asks: Asks) -> None:
    known = {**issuer.discovery(), name: "http://id.example.com/x"}
    issuer.answers["/.well-known/openid-configuration"] = lambda: (200, known)
    answer = await asks(issuer.token()).get("/api/me")
    assert answer.status_code == 503
    assert "https" in answer.json()["error"]


async def test_a_token_without_the_id_of_its_key(issuer: SmallIssuer, asks: Asks) -> None:
    assert (await asks(issuer.token({"kid": None})).get("/api/me")).status_code == 200


async def test_one_of_several_keys_has_to_be_named(issuer: SmallIssuer, asks: Asks) -> None:
    issuer.keys["another"] = RSAKey.generate_key(2048, {"kid": "another"})
    assert (await asks(issuer.token({"kid": None})).get("/api/me")).status_code == 401


async def test_an_elliptic_key_is_a_key(issuer: SmallIssuer, asks: Asks) -> None:
    key = ECKey.generate_key("P-256", {"kid": "e", "use": "sig"})
    issuer.keys["e"] = key
    assert (await asks(issuer.token({"alg": "ES256", "kid": "e"}, key)).get("/api/me")).status_code == 200


@pytest.mark.parametrize("first", ["RSA", "EC", "an RSA key before it"])
async def test_keys_of_several_kinds_may_share_an_id(first: str, issuer: SmallIssuer, asks: Asks) -> None:
    ec, old = ECKey.generate_key("P-256", {"kid": "first"}), RSAKey.generate_key(2048, {"kid": "first"})
    rsa = issuer.keys["first"]
    listed = {"RSA": [rsa, ec], "EC": [ec, rsa], "an RSA key before it": [old, rsa, ec]}[first]
    issuer.answers["/jwks"] = lambda: (200, {"keys": [key.as_dict(private=False) for key in listed]})
    for token in (issuer.token(), issuer.token({"alg": "ES256"}, key=ec)):
        assert (await asks(token).get("/api/me")).status_code == 200
    assert (await asks(issuer.token(key=RSAKey.generate_key(2048))).get("/api/me")).status_code == 401


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "ftp://proxy.example"])
async def test_an_identity_provider_of_this_machine_is_asked_through_no_proxy(
    proxy: str, issuer: SmallIssuer, asks: Asks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    assert (await asks(issuer.token()).get("/api/me")).status_code == 200


async def test_a_proxy_that_cannot_be_used_makes_people_wait(
    shop: Shop, issuer: SmallIssuer, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "ftp://proxy.example")
    token, known = issuer.token(), (await Tokens(shop.app.store.documents, clock).create("ci", Role.VIEWER))[1]
    async with api_of(shop, replace(issuer.settings(), issuer="https://id.example"), clock) as api:
        async with asking(api, token) as http:
            answer = await http.get("/api/me")
            assert (answer.status_code, "unset HTTPS_PROXY" in answer.json()["error"]) == (503, True)
        async with asking(api, known) as http:
            assert (await http.get("/api/me")).status_code == 200


async def test_a_key_for_encryption_signs_nobody_in(issuer: SmallIssuer, asks: Asks) -> None:
    key = RSAKey.generate_key(2048, {"kid": "enc"})
    published = issuer.jwks()["keys"] + [key.as_dict(private=False) | {"use": "enc"}]
    issuer.answers["/jwks"] = lambda: (200, {"keys": published})
    assert (await asks(issuer.token()).get("/api/me")).status_code == 200
    assert (await asks(issuer.token({"kid": "enc"}, key)).get("/api/me")).status_code == 401


async def test_a_person_reaches_what_its_claims_name(shop: Shop, issuer: SmallIssuer, clock: Later) -> None:
    oidc = issuer.settings(sources_claim="reach.sources", unmask=("oncall",))
    async with api_of(shop, oidc, clock) as api:
        token = issuer.token(reach={"sources": ["mail.*"]}, roles=["redrive-operator", "oncall"])
        async with asking(api, token) as olaf:
            me = (await olaf.get("/api/me")).json()
            assert (me["scope"], me["may_unmask"]) == ({"sources": ["mail.*"]}, True)
            assert (await olaf.get("/metrics")).status_code == 403
        async with asking(api, issuer.token()) as nobody:
            answer = await nobody.get("/api/me")
            assert answer.status_code == 403
            assert "reaches nothing" in answer.json()["error"]
