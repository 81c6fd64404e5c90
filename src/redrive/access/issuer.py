"""The identity provider: where it answers, the keys it signs with, and what it says of a code or a refresh token.

Its keys are fetched when they are first needed and then every five minutes. A token of a key that is not among them
makes them be fetched again, at most every ten seconds: a new key is known at once, and nobody makes us ask in a loop.
While it is away, the keys that it had last are good for an hour; after that people hear that it is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import quote_plus

import msgspec
from msgspec import Struct

from redrive.access.claims import LoginRefused, check_address
from redrive.access.proxies import client_for
from redrive.clock import Clock
from redrive.config.settings import Oidc
from redrive.errors import ConfigError, MissingExtra, Unavailable
from redrive.untrusted import UNREADABLE

try:
    import httpx
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey
except ImportError as error:
    raise MissingExtra("signing people in", "oidc") from error

PublicKey: TypeAlias = RSAKey | ECKey | OKPKey
_FRESH = 300.0  # seconds for which keys and addresses are not asked for again
_BETWEEN = 10.0  # the least between two fetches that tokens of unknown keys, or failures, cause
_STALE = 3600.0  # for so long keys are good while nobody answers
_PATIENCE = 5.0
_LARGEST = 1 << 20
_LEAST_RSA = 2048
_MOST_OF_AN_ID = 4  # keys: with each of them a signature is compared


class Addresses(Struct, frozen=True):
    """Where it answers what, in its own words."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    device_authorization_endpoint: str | None = None
    end_session_endpoint: str | None = None
    revocation_endpoint: str | None = None


class IssuerAway(Unavailable):
    """The identity provider does not answer: people cannot be told apart now, tokens go on."""


class _Known(Struct, frozen=True):
    addresses: Addresses
    keys: dict[str | None, tuple[PublicKey, ...]]  # keys that have no id are under None
    at: float


class Issuer:
    """One identity provider, asked as seldom as can be."""

    def __init__(self, oidc: Oidc, clock: Clock) -> None:
        self._oidc = oidc
        self._name = f"the identity provider {oidc.issuer}"
        self._clock = clock
        self._client: httpx.AsyncClient | None = None
        self._known: _Known | None = None
        self._tried = -_BETWEEN * 2
        self._failure: IssuerAway | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def addresses(self) -> Addresses:
        """Where it answers what."""
        return (await self._current()).addresses

    async def keys(self, id: str | None) -> tuple[PublicKey, ...]:
        """The keys of that id: mostly one, but RFC 7517 lets keys of several kinds share theirs.

        LoginRefused if it has none, even after a look for new ones.
        """
        known = await self._current()
        if id not in known.keys and not (id is None and len(known.keys) == 1):
            known = await self._after(known)
        if id is None and len(known.keys) == 1:
            return next(iter(known.keys.values()))
        if id not in known.keys:
            raise LoginRefused("the token is signed with a key that the identity provider does not have")
        return known.keys[id]

    async def submit(self, url: str, form: Mapping[str, str]) -> dict[str, Any]:
        """What it answers to a form of this client; LoginRefused with its own error if it refuses."""
        secret = self._oidc.client_secret
        sent = dict(form) if secret is not None else {"client_id": self._oidc.client_id or "", **form}
        auth = None if secret is None else httpx.BasicAuth(_quoted(self._oidc.client_id or ""), _quoted(secret))
        status, answer = await self._asked("POST", url, data=sent, auth=auth)
        if status in (400, 401, 403):
            error = answer.get("error") if isinstance(answer, dict) else None
            raise LoginRefused(f"the identity provider refused it: {str(error or status)[:100]}")
        if status != 200 or not isinstance(answer, dict):
            raise IssuerAway(self._name, f"it answered {status}")
        return answer

    async def revoke(self, refresh: str) -> None:
        """Tell it that a refresh token is not needed any more, where it wants to hear that."""
        if url := (await self.addresses()).revocation_endpoint:
            form = {"token": refresh, "token_type_hint": "refresh_token"}
            await self.submit(url, form)

    async def aclose(self) -> None:
        """Close what it has opened."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _current(self) -> _Known:
        known = self._known
        if known is not None and self._clock.elapsed() - known.at < _FRESH:
            return known
        return await self._after(known)

    async def _after(self, seen: _Known | None) -> _Known:
        """What is known after that, fetched by one for all who wait; at most every few seconds.

        It is fetched to the end though whoever asked first leaves: else somebody who asks and leaves, again and again,
        keeps everybody out.
        """
        if self._known is not seen and self._known is not None:
            return self._known
        if self._fetching is None and self._clock.elapsed() - self._tried >= _BETWEEN:
            self._fetching = asyncio.create_task(self._fetch())
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
        return self._usable()

    async def _fetch(self) -> None:
        self._tried, self._failure = self._clock.elapsed(), None
        try:
            addresses = await self._discovered()
            status, answer = await self._asked("GET", addresses.jwks_uri)
            keys = _keys(answer) if status == 200 else {}
            if not keys:
                raise IssuerAway(self._name, f"its keys cannot be read (it answered {status})")
            self._known = _Known(addresses, keys, self._clock.elapsed())
        except IssuerAway as error:
            self._failure = error
        finally:
            self._fetching = None

    def _usable(self) -> _Known:
        known = self._known
        if known is None or self._clock.elapsed() - known.at > _STALE:
            raise IssuerAway(self._name, self._failure.why if self._failure else "it was asked a moment ago")
        return known

    async def _discovered(self) -> Addresses:
        url = f"{str(self._oidc.issuer).rstrip('/')}/.well-known/openid-configuration"
        status, answer = await self._asked("GET", url)
        if status != 200:
            raise IssuerAway(self._name, f"{url} answered {status}")
        try:
            found = msgspec.convert(answer, Addresses)
            self._check(found)
        except (msgspec.ValidationError, ConfigError) as error:
            raise IssuerAway(self._name, f"what {url} answers cannot be used: {error}") from None
        return found

    def _check(self, found: Addresses) -> None:
        if found.issuer != self._oidc.issuer:
            raise ConfigError(f"it calls itself {found.issuer!r}: set access.oidc.issuer to exactly that")
        for name in Addresses.__struct_fields__[1:]:
            if (url := getattr(found, name)) is not None:
                check_address(name, url.partition("?")[0])

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            try:
                self._client = client_for(self._oidc.issuer or "", timeout=_PATIENCE, follow_redirects=False)
            except ConfigError as error:
                raise IssuerAway(self._name, str(error)) from None
        return self._client

    async def _asked(self, method: str, url: str, **given: Any) -> tuple[int, Any]:
        """The status, and the JSON that was answered, if it was any."""
        client = self._opened()
        try:
            async with asyncio.timeout(_PATIENCE * 2), client.stream(method, url, **given) as answer:
                body = b""
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > _LARGEST:
                        raise IssuerAway(self._name, "its answer is larger than any should be")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError) as error:
            raise IssuerAway(self._name, _why(error)) from None
        try:
            return answer.status_code, msgspec.json.decode(body)
        except UNREADABLE:
            return answer.status_code, None


def _keys(answer: Any) -> dict[str | None, tuple[PublicKey, ...]]:
    """The public keys that signatures are checked with; what cannot be read, or is not for that, is left out."""
    listed = answer.get("keys") if isinstance(answer, dict) else None
    found: dict[str | None, tuple[PublicKey, ...]] = {}
    for raw in listed if isinstance(listed, list) else ():
        key = _public_key(raw)
        if key is not None:
            named = raw.get("kid")
            id = named if isinstance(named, str) else None
            found[id] = (*found.get(id, ()), key)[:_MOST_OF_AN_ID]
    return found


def _public_key(raw: Any) -> PublicKey | None:
    if not isinstance(raw, dict) or raw.get("use", "sig") != "sig" or raw.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    try:
        key = JWKRegistry.import_key({name: value for name, value in raw.items() if name not in ("d", "key_ops")})
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAKey) and key.raw_value.key_size < _LEAST_RSA:
        return None
    return key if isinstance(key, RSAKey | ECKey | OKPKey) else None


def _quoted(text: str) -> str:
    """As RFC 6749 has the parts of a client's credentials."""
    return quote_plus(text)


def _why(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "no answer in time"
    return "connection refused or host unknown" if isinstance(error, httpx.ConnectError) else type(error).__name__
