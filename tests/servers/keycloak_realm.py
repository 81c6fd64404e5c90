"""The realm that the Keycloak of the tests begins with: a team, a client of the console, one of the command line."""

from typing import Any

REALM = "acme"
AUDIENCE = "redrive"
CONSOLE, CONSOLE_SECRET = "redrive-console", "a-secret-of-the-console"
CLI = "redrive-cli"
PASSWORD = "correct horse battery staple"
ROLES = ("redrive-admin", "redrive-operator", "redrive-viewer", "redrive-unmask")
SOURCES = "redrive_sources"  # the claim with the sources that somebody reaches


def _mapper(name: str, kind: str, **config: str) -> dict[str, Any]:
    return {"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config}


_MAPPERS = [
    _mapper("audience", "oidc-audience-mapper", **{"included.custom.audience": AUDIENCE, "access.token.claim": "true"}),
    _mapper(
        "roles",
        "oidc-usermodel-realm-role-mapper",
        **{"claim.name": "roles", "multivalued": "true", "access.token.claim": "true", "id.token.claim": "true"},
    ),
    _mapper(
        "sources",
        "oidc-usermodel-attribute-mapper",
        **{
            "user.attribute": SOURCES,
            "claim.name": SOURCES,
            "jsonType.label": "String",
            "multivalued": "true",
            "access.token.claim": "true",
            "id.token.claim": "true",
        },
    ),
]


def _user(name: str, *roles: str, sources: str = "*") -> dict[str, Any]:
    return {
        "username": name,
        "enabled": True,
        "email": f"{name}@acme.example",
        "emailVerified": True,
        "firstName": name.capitalize(),
        "lastName": "Acme",
        "credentials": [{"type": "password", "value": PASSWORD, "temporary": False}],
        "realmRoles": [f"redrive-{role}" for role in roles],
        "attributes": {SOURCES: [sources]},
    }


_CLIENTS = [
    {
        "clientId": CONSOLE,
        "secret": CONSOLE_SECRET,
        "publicClient": False,
        "standardFlowEnabled": True,
        "directAccessGrantsEnabled": False,
        # Keycloak leaves the port of a loopback address open
        "redirectUris": ["http://127.0.0.1/login/callback", "http://localhost/login/callback"],
        "attributes": {"pkce.code.challenge.method": "S256", "post.logout.redirect.uris": "http://127.0.0.1/*"},
        "protocolMappers": _MAPPERS,
    },
    {
        "clientId": CLI,
        "publicClient": True,
        "standardFlowEnabled": False,
        "directAccessGrantsEnabled": True,  # so that a test has a token without a browser
        "attributes": {
            "oauth2.device.authorization.grant.enabled": "true",
            "oauth2.device.polling.interval": "1",
        },
        "protocolMappers": _MAPPERS,
    },
]

REALM_FILE: dict[str, Any] = {
    "realm": REALM,
    "enabled": True,
    "sslRequired": "none",
    "roles": {"realm": [{"name": role} for role in ROLES]},
    "clients": _CLIENTS,
    "users": [
        _user("ann", "admin", "unmask"),
        _user("olaf", "operator", sources="mail.*"),
        _user("vera", "viewer"),
        _user("omar", "operator"),
        _user("nora"),  # of the company, and nobody to Redrive
    ],
}
