"""What the claims of a person mean: a role, what it reaches, whether it may unmask. Pure: nothing here asks anybody.

Whatever a claim leaves open is refused, never granted: no role of ours is nobody, and a scope that is to come from a
claim which is not there reaches nothing at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from redrive.access.actors import Actor, Role, Scope, Via
from redrive.access.tokens import check_scope
from redrive.config.settings import Oidc
from redrive.errors import ConfigError, RedriveError, UsageError

ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_ALL = "*"
_HERE = ("localhost", "127.0.0.1", "::1")
_LONGEST = 200  # characters of a name
_LONGEST_SUBJECT = 255  # as OpenID Connect bounds it


class LoginRefused(RedriveError):
    """Whoever this is does not come in; the text says why, and never what a token holds."""

    def __init__(self, why: str, *, who: Actor | None = None) -> None:
        super().__init__(why)
        self.who = who  # known only where a signature was good


class NoRole(LoginRefused):
    """A person, known to the identity provider, who has no role here."""


def looks_signed(text: str) -> bool:
    """Whether a text that somebody shows is meant to be a token of an identity provider."""
    return text.count(".") == 2 and not text.startswith("rdr_")


def check_oidc(oidc: Oidc) -> None:
    """Refuse settings under which nobody, or anybody, would come in."""
    if oidc.issuer is None:
        return
    check_address("access.oidc.issuer", oidc.issuer)
    if oidc.console is not None:
        check_address("access.oidc.console", oidc.console, only_https=False)
    for algorithm in oidc.algorithms:
        if algorithm not in ASYMMETRIC:
            raise ConfigError(f"access.oidc.algorithms: {algorithm!r} is none of {', '.join(ASYMMETRIC)}")
    if not oidc.algorithms:
        raise ConfigError("access.oidc.algorithms: name at least one, such as RS256")
    if "openid" not in oidc.scopes:
        raise ConfigError("access.oidc.scopes: `openid` has to be among them, or nobody says who signs in")
    if oidc.client_secret is not None and oidc.client_id is None:
        raise ConfigError("access.oidc.client_id: whose is the secret in access.oidc.client_secret?")
    roles_of(oidc)


def check_address(name: str, url: str, *, only_https: bool = True) -> None:
    """Refuse what is no address of a server, and one that is asked without TLS over a network."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        raise ConfigError(f"{name}: it takes an address such as 'https://id.example.com/realms/acme'")
    if only_https and parts.scheme == "http" and host not in _HERE:
        raise ConfigError(f"{name}: who can change what is answered there can be anybody: it has to be https://")


def roles_of(oidc: Oidc) -> dict[str, Role]:
    """Which value of the claim is which role."""
    found = {}
    for pair in oidc.roles:
        value, _, role = (part.strip() for part in pair.rpartition("="))
        if not value or role not in list(Role):
            raise ConfigError(f"access.oidc.roles: {pair!r} is not VALUE=ROLE, with {', '.join(Role)} as roles")
        found[value] = Role(role)
    return found


def person_of(oidc: Oidc, claims: Mapping[str, Any]) -> Actor:
    """The person of these claims, whose signature was good; NoRole if it has nothing to do here."""
    nobody = unknown_person(oidc, claims)
    values = values_of(claims, oidc.role_claim)
    roles = [role for value, role in roles_of(oidc).items() if value in values]
    if not roles:
        raise NoRole(f"{nobody.name!r} has no role in Redrive: its claim {oidc.role_claim!r} names none", who=nobody)
    return Actor(
        id=nobody.id,
        name=nobody.name,
        role=max(roles, key=list(Role).index),
        via=Via.PERSON,
        scope=_scope(oidc, claims, nobody),
        may_unmask=not values.isdisjoint(oidc.unmask),
    )


def unknown_person(oidc: Oidc, claims: Mapping[str, Any]) -> Actor:
    """Who it is, with the least of roles: for the trail, where somebody is refused."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject.strip() or len(subject) > _LONGEST_SUBJECT:
        raise LoginRefused("the token names nobody: it has no claim `sub`")
    if not subject.isprintable():  # it would stand in the trail, and could not be read there
        raise LoginRefused("the token names nobody: its claim `sub` has characters that cannot be shown")
    names = (claims.get(name) for name in (oidc.name_claim, "email", "name", "sub"))
    name = next(name for name in names if isinstance(name, str) and name.strip() and name.isprintable())
    return Actor(id=f"{oidc.issuer}#{subject}", name=name[:_LONGEST], role=Role.VIEWER, via=Via.PERSON)


def values_of(claims: Mapping[str, Any], path: str) -> set[str]:
    """The texts of a claim: of a list, or of one text with spaces or commas between them."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return {part for part in re.split(r"[\s,]+", found) if part}
    return {item for item in found if isinstance(item, str) and item} if isinstance(found, list) else set()


def _scope(oidc: Oidc, claims: Mapping[str, Any], who: Actor) -> Scope:
    scope = Scope(
        sources=_patterns(claims, oidc.sources_claim, who),
        tenants=_patterns(claims, oidc.tenants_claim, who),
        systems=_patterns(claims, oidc.systems_claim, who),
    )
    try:
        check_scope(scope)
    except UsageError as error:
        raise NoRole(f"what {who.name!r} reaches cannot be read from its claims: {error}", who=who) from None
    return scope


def _patterns(claims: Mapping[str, Any], claim: str | None, who: Actor) -> tuple[str, ...]:
    if claim is None:
        return ()
    values = values_of(claims, claim)
    if not values:
        raise NoRole(f"{who.name!r} reaches nothing in Redrive: its claim {claim!r} names nothing", who=who)
    return () if _ALL in values else tuple(sorted(values))
