"""People: who an access token or an ID token of the identity provider is, if every bit of it is as it should be.

A token is believed if the identity provider signed it with a key that it has now, in a way that the settings allow
(never with a shared secret, never not at all), for us, and for this time. Everything else is LoginRefused.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from redrive.access.actors import Actor
from redrive.access.claims import LoginRefused, check_oidc, person_of, unknown_person
from redrive.access.issuer import Issuer, PublicKey
from redrive.clock import Clock
from redrive.config.settings import Oidc
from redrive.errors import MissingExtra
from redrive.untrusted import UNREADABLE

try:
    from joserfc import jws, jwt
    from joserfc.errors import ClaimError, JoseError
except ImportError as error:
    raise MissingExtra("signing people in", "oidc") from error

_LONGEST = 16_384
_KINDS = ("", "jwt", "at+jwt", "application/at+jwt")  # what the header calls a token that says who somebody is
_REMEMBERED = 10_000
_WRONG = {
    "exp": "it is expired: sign in again",
    "nbf": "it is not valid yet: are the clocks right?",
    "iat": "it is from the future: are the clocks right?",
    "iss": "somebody else issued it",
    "aud": "it is for somebody else",
    "sub": "it names nobody",
}


class People:
    """Those whom one identity provider knows."""

    def __init__(self, oidc: Oidc, clock: Clock) -> None:
        check_oidc(oidc)
        self.oidc = oidc
        self.issuer = Issuer(oidc, clock)
        self._clock = clock
        self._seen: OrderedDict[str, None] = OrderedDict()

    async def check(self, text: str) -> tuple[Actor, bool]:
        """Who shows that access token, and whether that login is seen here for the first time."""
        claims = await self.claims(text, self.oidc.audience)
        return person_of(self.oidc, claims), self._is_new(claims)

    async def identify(self, text: str, *, nonce: str | None) -> Mapping[str, Any]:
        """The claims of an ID token that was issued to the console; with `nonce`, for that login."""
        client = self.oidc.client_id or ""
        claims = await self.claims(text, client)
        if nonce is not None and not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise LoginRefused("the token was issued for another login")
        if claims.get("azp", client) != client:
            raise LoginRefused("the token was issued to another client")
        return claims

    async def claims(self, text: str, audience: str) -> Mapping[str, Any]:
        """What a token for that audience says, once its signature and its times are good."""
        header = _header(text)
        algorithm = header.get("alg")
        if algorithm not in self.oidc.algorithms:
            raise LoginRefused("the token is not signed in a way that is allowed here (access.oidc.algorithms)")
        if str(header.get("typ") or "").lower() not in _KINDS:
            raise LoginRefused("the token is of another kind: show an access token")
        id = header.get("kid")
        keys = await self.issuer.keys(id if isinstance(id, str) else None)
        claims = next((claims for key in keys if (claims := _signed(text, key, algorithm)) is not None), None)
        if claims is None:
            raise LoginRefused("the signature of the token is not right")
        self._check(claims, audience)
        return claims

    def _check(self, claims: dict[str, Any], audience: str) -> None:
        registry = jwt.JWTClaimsRegistry(
            now=lambda: int(self._clock.now().timestamp()),
            leeway=int(self.oidc.leeway.total_seconds()),
            iss={"essential": True, "value": self.oidc.issuer or ""},
            sub={"essential": True},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
        )
        try:
            registry.validate(claims)
        except ClaimError as error:
            who = None if error.claim in ("sub", "iss") else unknown_person(self.oidc, claims)
            why = _WRONG.get(error.claim, f"its claim {error.claim!r} is not right")
            raise LoginRefused(f"the token cannot be used: {why}", who=who) from None

    def _is_new(self, claims: Mapping[str, Any]) -> bool:
        """Whether no token of this login came before: tokens are short-lived, and each would be a line in the trail."""
        login = next((str(claims[name]) for name in ("sid", "jti", "iat") if name in claims), "")
        key = f"{claims['sub']} {login}"
        is_new = key not in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return is_new


def _signed(text: str, key: PublicKey, algorithm: str) -> dict[str, Any] | None:
    """What is signed with that key; None if nothing is."""
    try:
        return jwt.decode(text, key, algorithms=[algorithm]).claims
    except (JoseError, TypeError, *UNREADABLE):
        return None


def _header(text: str) -> Mapping[str, Any]:
    if len(text) > _LONGEST:
        raise LoginRefused(f"the token is too long: at most {_LONGEST} characters; let it name fewer roles or groups")
    if not text.isascii():
        raise LoginRefused("this is no token")
    try:
        return jws.extract_compact(text.encode()).headers()
    except (JoseError, TypeError, *UNREADABLE):
        raise LoginRefused("this is no token") from None
