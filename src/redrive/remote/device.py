"""A login on another device (RFC 8628), and tokens that are renewed by a refresh token.

the server says who its issuer is (GET /api/login)
the issuer says where to ask (OpenID Connect Discovery), and gives a code that somebody types into a page
until that is done, or refused, or too late, we ask again every few seconds, and slower where we are told to
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec
from msgspec import Struct

from redrive.access.proxies import client_for
from redrive.clock import Clock, SystemClock
from redrive.errors import NotAllowed, Unavailable, UsageError
from redrive.remote.address import checked
from redrive.remote.credentials import Login, Place, keep, kept, renewing
from redrive.remote.http import Http, translated, trusted
from redrive.untrusted import UNREADABLE

T = TypeVar("T")
_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_SLOWER, _SLOWEST = 5.0, 60.0  # seconds more between two questions, as the RFC has it; and at most


class Door(Struct, frozen=True):
    """What a server says of its issuer."""

    issuer: str | None = None
    client_id: str | None = None
    scopes: tuple[str, ...] = ("openid",)


class Endpoints(Struct, frozen=True):
    """Where an issuer is asked, as its discovery document says."""

    issuer: str
    token_endpoint: str
    device_authorization_endpoint: str | None = None


class DeviceCode(Struct, frozen=True):
    """What somebody types, where, and until when."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    verification_uri_complete: str | None = None
    interval: float = 5.0


class Granted(Struct, frozen=True):
    """Tokens of an issuer."""

    access_token: str
    refresh_token: str = ""
    expires_in: float | None = None


class Denied(Struct, frozen=True):
    """What an issuer says where it gives no token."""

    error: str
    error_description: str = ""


async def door_of(server: str, ca_file: Path | None) -> Door:
    """Who is asked for a login of that server."""
    http = Http(server, "", ca_file=ca_file)
    try:
        found: Door = await http.get(Door, "/api/login")
    finally:
        await http.aclose()
    if not found.issuer or not found.client_id:
        raise UsageError(
            f"{server} has no issuer that people log in with: get a token from whoever runs it (`redrive token "
            f"create`), and give it to `redrive login --token -`"
        )
    return found


async def login(
    server: str, ca_file: Path | None, show: Callable[[DeviceCode], None], clock: Clock | None = None
) -> Login:
    """Log in on another device: `show` tells somebody what to type where."""
    clock, door = clock or SystemClock(), await door_of(server, ca_file)
    named = door.issuer or ""
    async with client_for(named, verify=trusted(ca_file)) as client, translated(named):
        issuer = Issuer(client, named, door.client_id or "")
        code = await issuer.begin(door.scopes)
        show(code)
        return issuer.login(await issuer.granted(code, clock), clock)


async def renewed(server: str, ca_file: Path | None, used: str = "", clock: Clock | None = None) -> Login | None:
    """Another token for that server, kept in place of the one that expired; None if only a login helps.

    used   the token that was refused: if another process has renewed it meanwhile, that is the one
    """
    clock = clock or SystemClock()
    async with renewing(server):
        found = kept(server)
        if found is None or not found[0].refresh_token:
            return None
        old, place = found
        if used and old.token != used:
            return old
        async with client_for(old.issuer, verify=trusted(ca_file)) as client, translated(old.issuer):
            issuer = Issuer(client, old.issuer, old.client_id)
            answer = await issuer.ask({"grant_type": "refresh_token", "refresh_token": old.refresh_token})
        if isinstance(answer, Denied):
            return None
        new = issuer.login(answer, clock, refresh=old.refresh_token)
        keep(server, new, in_file=place is Place.FILE)
        return new


class Issuer:
    """Asks an issuer for tokens, as a client that has no secret."""

    def __init__(self, client: httpx.AsyncClient, issuer: str, client_id: str) -> None:
        self._client = client
        self._issuer = checked(issuer)
        self._client_id = client_id
        self._endpoints: Endpoints | None = None

    async def begin(self, scopes: tuple[str, ...]) -> DeviceCode:
        """A code for somebody to type."""
        where = (await self._found()).device_authorization_endpoint
        if where is None:
            raise UsageError(
                f"{self._issuer} does not offer a login on another device (device authorization): use a token with "
                f"`redrive login --token -`"
            )
        answer = await self._post(where, {"scope": " ".join(scopes)})
        if not answer.is_success:
            denied = _as(Denied, answer, self._issuer)
            raise UsageError(f"{self._issuer} gives no code: {denied.error_description or denied.error}")
        return _as(DeviceCode, answer, self._issuer)

    async def granted(self, code: DeviceCode, clock: Clock) -> Granted:
        """Ask until somebody has typed the code. Raises UsageError if it is refused, or too late."""
        pause, over = max(code.interval, 0.0), clock.elapsed() + code.expires_in
        while clock.elapsed() < over:
            await clock.sleep(pause)
            try:
                answer = await self.ask({"grant_type": _DEVICE, "device_code": code.device_code})
            except Unavailable:
                pause = min(max(2 * pause, 1.0), _SLOWEST)  # it may come back before the code expires
                continue
            if isinstance(answer, Granted):
                return answer
            match answer.error:
                case "authorization_pending":
                    continue
                case "slow_down":
                    pause += _SLOWER
                case "access_denied":
                    raise NotAllowed("the login was refused on the other device: you are not logged in")
                case "expired_token":
                    break
                case _:
                    raise UsageError(f"{self._issuer} gives no token: {answer.error_description or answer.error}")
        raise UsageError("nobody typed the code in time: `redrive login` gives another one")

    async def ask(self, form: Mapping[str, str]) -> Granted | Denied:
        """Ask for a token; why not, if none is given."""
        async with translated(self._issuer):
            answer = await self._post((await self._found()).token_endpoint, form)
        if answer.status_code >= 500:
            raise Unavailable(self._issuer, f"it answers {answer.status_code}")
        return _as(Granted, answer, self._issuer) if answer.is_success else _as(Denied, answer, self._issuer)

    def login(self, granted: Granted, clock: Clock, refresh: str = "") -> Login:
        """What is kept of it. An issuer that gives no new refresh token means the one there is."""
        lives = None if granted.expires_in is None else timedelta(seconds=granted.expires_in)
        return Login(
            token=granted.access_token,
            refresh_token=granted.refresh_token or refresh,
            issuer=self._issuer,
            client_id=self._client_id,
            expires_at=None if lives is None else clock.now() + lives,
        )

    async def _found(self) -> Endpoints:
        if self._endpoints is None:
            answer = await self._client.get(f"{self._issuer}/.well-known/openid-configuration")
            found = _as(Endpoints, answer, self._issuer)
            if found.issuer.rstrip("/") != self._issuer:
                raise UsageError(f"{self._issuer} says that it is {found.issuer}: nothing was sent to it")
            for where in (found.token_endpoint, found.device_authorization_endpoint):
                checked(where or self._issuer)
            self._endpoints = found
        return self._endpoints

    async def _post(self, where: str, form: Mapping[str, str]) -> httpx.Response:
        return await self._client.post(where, data={"client_id": self._client_id, **form})


def _as(kind: type[T], answer: httpx.Response, issuer: str) -> T:
    try:
        found: T = msgspec.json.decode(answer.content, type=kind)
    except UNREADABLE as error:
        raise UsageError(f"{issuer} answers {answer.status_code}, and not as an issuer does ({error})") from None
    return found
