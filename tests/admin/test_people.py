"""People who show access tokens: a right one comes in as what its claims say, and everything else stays outside."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from joserfc.jwk import ECKey, RSAKey
from litestar import Litestar
from msgspec.structs import replace

from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Access, Oidc
from redrive.service import Service
from tests.admin.asking import asking, running
from tests.admin.conftest import Shop
from tests.admin.issuing import SmallIssuer, small_issuer

Asks = Callable[[str | None], httpx.AsyncClient]


@pytest.fixture
def issuer() -> Iterator[SmallIssuer]:
    with small_issuer() as made:
        yield made


@pytest.fixture
def oidc(issuer: SmallIssuer) -> Oidc:
    return issuer.settings()


@pytest.fixture
async def api(shop: Shop, tokens: Tokens, oidc: Oidc) -> AsyncIterator[Litestar]:
    shop.app.settings = replace(shop.app.settings, access=Access(oidc=oidc))
    made = create_api(Service(shop.app), tokens=tokens)
    made.state.door.logins.sleep = _at_once
    async with running(made):
        yield made


async def _at_once(seconds: float) -> None:
    return None


@pytest.fixture
async def asks(api: Litestar) -> AsyncIterator[Asks]:
    made: list[httpx.AsyncClient] = []

    def with_(token: str | None) -> httpx.AsyncClient:
        made.append(asking(api, token))
        return made[-1]

    yield with_
    for one in made:
        await one.aclose()


async def trail(shop: Shop, action: str = "login") -> list[dict[str, Any]]:
    return [line for line in await Service(shop.app).audit() if line["action"] == action]


async def test_a_person_comes_in_as_what_its_claims_say(issuer: SmallIssuer, asks: Asks) -> None:
    answer = await asks(issuer.token()).get("/api/me")
    assert answer.json() == {
        "id": f"{issuer.url}#7",
        "name": "olaf",
        "role": "operator",
        "via": "person",
        "scope": {},
        "may_unmask": False,
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
    "huge": (lambda i: "a" * 20_000 + ".b.c", "no token"),
}


def _swapped(signed: str, other: str) -> str:
    header, _, signature = signed.split(".")
    return f"{header}.{other.split('.')[1]}.{signature}"


def _critical(issuer: SmallIssuer) -> str:
    import base64
    import json

    header, claims, signature = issuer.token().split(".")
    known = json.loads(base64.urlsafe_b64decode(header + "=="))
    changed = json.dumps({**known, "crit": ["exp"], "exp": 1}).encode()
    return f"{base64.urlsafe_b64encode(changed).rstrip(b'=').decode()}.{claims}.{signature}"


@pytest.mark.parametrize("what", TAMPERED)
async def test_a_tampered_token_is_refused_and_written_down(
    what: str, issuer: SmallIssuer, asks: Asks, shop: Shop
) -> None:
    make, why = TAMPERED[what]
    answer = await asks(None).get("/api/letters", headers={"Authorization": f"Bearer {make(issuer)}".encode()})
    assert answer.status_code == 401
    assert why in answer.json()["error"]
    assert answer.headers["www-authenticate"] == 'Bearer realm="redrive", error="invalid_token"'
    (line,) = await trail(shop)
    assert line["outcome"] == "refused"
    assert why in line["detail"]
