"""What claims mean, and which settings would let in nobody, or anybody."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.access.actors import EVERYTHING, Role, Scope
from redrive.access.claims import NoRole, check_oidc, person_of
from redrive.config.settings import Oidc
from redrive.errors import ConfigError

ISSUER = "https://id.example.com"
BASE = {"sub": "7", "roles": ["redrive-viewer"]}


def oidc(**more: Any) -> Oidc:
    return Oidc(issuer=ISSUER, **more)


@pytest.mark.parametrize(
    ("claims", "settings", "role"),
    [
        ({"roles": ["redrive-viewer", "redrive-admin", "x"]}, {}, Role.ADMIN),
        ({"roles": "redrive-viewer redrive-operator"}, {}, Role.OPERATOR),
        ({"realm_access": {"roles": ["redrive-viewer"]}}, {"role_claim": "realm_access.roles"}, Role.VIEWER),
        ({"https://acme.example/roles": ["oncall"]}, {"role_claim": "https://acme.example/roles"}, Role.OPERATOR),
        ({"groups": ["/a=b"]}, {"role_claim": "groups", "roles": ("/a=b=viewer",)}, Role.VIEWER),
    ],
)
def test_the_highest_role_counts(claims: dict[str, Any], settings: dict[str, Any], role: Role) -> None:
    settings.setdefault("roles", ("oncall=operator", *Oidc().roles))
    assert person_of(oidc(**settings), {"sub": "7", **claims}).role is role


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"roles": []},
        {"roles": ["admin"]},
        {"roles": {"redrive-admin": True}},
        {"roles": [["redrive-admin"]]},
        {"roles": None},
        {"roles": 7},
        {"roles": "redrive-administrator"},
    ],
)
def test_what_names_no_role_is_nobody(claims: dict[str, Any]) -> None:
    with pytest.raises(NoRole, match="no role"):
        person_of(oidc(), {"sub": "7", **claims})


@pytest.mark.parametrize(
    ("claim", "scope"),
    [
        (["mail.*", "orders"], Scope(sources=("mail.*", "orders"))),
        ("mail.* orders", Scope(sources=("mail.*", "orders"))),
        (["*"], EVERYTHING),
        (["mail.*", "*"], EVERYTHING),
    ],
)
def test_a_scope_from_a_claim(claim: Any, scope: Scope) -> None:
    assert person_of(oidc(sources_claim="reach"), {**BASE, "reach": claim}).scope == scope


@pytest.mark.parametrize(
    "claim", [None, [], "", " ", {}, 7, [""], ["x" * 300], ["a\x00"], [str(n) for n in range(101)]]
)
def test_a_scope_that_cannot_be_read_reaches_nothing(claim: Any) -> None:
    with pytest.raises(NoRole):
        person_of(oidc(tenants_claim="reach"), {**BASE, "reach": claim})


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "ann", "email": "a@x"}, "ann"),
        ({"preferred_username": "a\nb", "email": "a@x"}, "a@x"),
        ({"preferred_username": 7}, "7"),
        ({"preferred_username": "x" * 500}, "x" * 200),
    ],
)
def test_the_name_is_for_showing_and_the_subject_for_knowing(claims: dict[str, Any], name: str) -> None:
    person = person_of(oidc(), {**BASE, **claims})
    assert (person.name, person.id) == (name, f"{ISSUER}#7")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"issuer": "id.example.com"}, "access.oidc.issuer"),
        ({"issuer": "http://id.example.com"}, "https"),
        ({"issuer": "https://id.example.com:port"}, "access.oidc.issuer"),
        ({"issuer": "https://id.example.com/?x=1"}, "access.oidc.issuer"),
        ({"console": "redrive"}, "access.oidc.console"),
        ({"algorithms": ("HS256",)}, "HS256"),
        ({"algorithms": ("none",)}, "none"),
        ({"algorithms": ()}, "at least one"),
        ({"roles": ("redrive-admin",)}, "VALUE=ROLE"),
        ({"roles": ("x=root",)}, "VALUE=ROLE"),
        ({"scopes": ("profile",)}, "openid"),
        ({"client_secret": "s"}, "client_id"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        check_oidc(Oidc(**({"issuer": ISSUER} | settings)))


def test_an_issuer_on_this_machine_needs_no_tls() -> None:
    check_oidc(Oidc(issuer="http://127.0.0.1:8080/realms/acme"))
