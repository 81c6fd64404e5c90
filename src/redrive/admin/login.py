"""How people sign in.

GET  /api/login       open: whether people can sign in here, and with what; `redrive login` asks it
"""

from __future__ import annotations

from litestar import Request, Router, get
from msgspec import Struct

from redrive.admin.callers import Door


class LoginWays(Struct, frozen=True):
    """How a person signs in here; all but `people` is null where only tokens come in."""

    people: bool = False
    issuer: str | None = None
    client_id: str | None = None  # of the command line: a public client
    device_authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    login: str | None = None  # where a browser begins


@get("/api/login", role=None)
async def show_login(request: Request) -> LoginWays:  # type: ignore[type-arg]
    """Whether people can sign in, and with what. `client_id` is the command line's (the setting
    access.oidc.cli_client_id); `login` is null where the console has no client."""
    door: Door = request.app.state.door
    if door.people is None:
        return LoginWays()
    oidc, addresses = door.people.oidc, await door.people.issuer.addresses()
    return LoginWays(
        people=True,
        issuer=oidc.issuer,
        client_id=oidc.cli_client_id,
        device_authorization_endpoint=addresses.device_authorization_endpoint,
        token_endpoint=addresses.token_endpoint,
        scopes=oidc.scopes,
        login="/login" if oidc.client_id else None,
    )


router = Router("/", route_handlers=[show_login], tags=["login"])
