"""People at the API: a server with a small identity provider, a clock that a test moves, and a browser's way in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from litestar import Litestar
from msgspec.structs import replace

from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.clock import SystemClock
from redrive.config.settings import Access, Oidc
from redrive.service import Service
from tests.admin.asking import asking, running
from tests.admin.conftest import Shop
from tests.admin.issuing import CONSOLE, SmallIssuer


class Later(SystemClock):
    """The machine's clock, as far ahead as a test lets it be."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead

    def elapsed(self) -> float:
        return super().elapsed() + self.ahead.total_seconds()


async def _at_once(seconds: float) -> None:
    return None


@asynccontextmanager
async def api_of(shop: Shop, oidc: Oidc, clock: Later) -> AsyncIterator[Litestar]:
    """A server for the people of that identity provider; it answers failures at once."""
    shop.app.settings = replace(shop.app.settings, access=Access(oidc=oidc))
    shop.app.clock = clock
    made = create_api(Service(shop.app), tokens=Tokens(shop.app.store.documents, clock))
    made.state.door.logins.sleep = _at_once
    async with running(made):
        yield made


async def trail(shop: Shop, action: str = "login") -> list[dict[str, Any]]:
    """The lines of that action, the newest first."""
    return [line for line in await Service(shop.app).audit() if line["action"] == action]


class Browser:
    """Signs in as a browser does, with the cookies that it was given."""

    def __init__(self, api: Litestar, issuer: SmallIssuer) -> None:
        self.http = asking(api)
        self.issuer = issuer
        self.asked: dict[str, str] = {}

    async def begin(self, to: str = "/") -> httpx.Response:
        answer = await self.http.get("/login", params={"to": to})
        self.asked = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
        return answer

    async def come_back(self, **changed: str | None) -> httpx.Response:
        given = {"state": self.asked.get("state", ""), "code": "a-code", **changed}
        return await self.http.get(
            "/login/callback", params={name: value for name, value in given.items() if value is not None}
        )

    def answers(self, *, refresh: str | None = "refresh-1", **claims: Any) -> None:
        """What the identity provider says to the next code or refresh token."""
        nonce = claims.pop("nonce", self.asked.get("nonce"))
        token = self.issuer.token(aud=CONSOLE, nonce=nonce, **claims)
        body = {"id_token": token, "refresh_token": refresh}
        self.issuer.answers["/token"] = lambda: (200, {name: value for name, value in body.items() if value})

    async def sign_in(self, *, refresh: str | None = "refresh-1", **claims: Any) -> httpx.Response:
        await self.begin()
        self.answers(refresh=refresh, **claims)
        return await self.come_back()

    async def csrf(self) -> dict[str, str]:
        """The header of a write."""
        return {"X-CSRF-Token": (await self.http.get("/api/me")).json()["csrf"]}
