"""How people sign in, and who somebody is.

GET  /api/login       open: whether people can sign in here, and with what; `redrive login` and the console ask it
GET  /api/me          who asks; to a session also `csrf`, which every write of the page sends back as X-CSRF-Token
GET  /login           open: sends the browser to the identity provider; `?to=/path` is where it comes back to
GET  /login/callback  open: where the identity provider sends it back to; sets the cookie `redrive_session`
POST /logout          ends the session of that cookie; wants X-CSRF-Token, too
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

from litestar import Request, Response, Router, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException
from msgspec import Struct

from redrive.access.actors import Actor, Role, Scope, Via
from redrive.access.browser import Login, new_login, returned
from redrive.access.claims import LoginRefused, NoRole
from redrive.admin.callers import (
    COOKIE,
    Door,
    address_of,
    check_same_site,
    csrf_for,
    is_known,
    note,
    own_address,
    refuse,
)
from redrive.errors import Unavailable

if TYPE_CHECKING:
    from redrive.access.people import People  # needs an extra

_LOGIN = "redrive_login"
_LOGIN_LASTS = 600  # seconds in which somebody signs in
_BACK = "/login/callback"
Asked: TypeAlias = Request[Any, Any, Any]


class LoginWays(Struct, frozen=True):
    """How a person signs in here; with `people` false, only tokens come in."""

    people: bool = False
    issuer: str | None = None
    client_id: str | None = None  # of the command line: a public client
    device_authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    login: str | None = None  # where a browser begins
    signed_in: bool = False  # whether whoever asks already has


class Me(Struct, frozen=True):
    """Who asks."""

    id: str
    name: str
    role: Role
    via: Via
    scope: Scope
    may_unmask: bool
    csrf: str | None = None  # of a session: what its writes send as X-CSRF-Token


class SignedOut(Struct, frozen=True):
    """A session that is over. The identity provider may still know the browser: `at_issuer` is where to end that."""

    at_issuer: str | None = None


@get("/api/login", role=None)
async def show_login(request: Asked) -> LoginWays:
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
        signed_in=await is_known(request, door),
    )


@get("/api/me", role=Role.VIEWER)
async def show_caller(request: Asked, actor: NamedDependency[Actor]) -> Me:
    """Who asks: the name, the role, and what it reaches."""
    return Me(
        id=actor.id,
        name=actor.name,
        role=actor.role,
        via=actor.via,
        scope=actor.scope,
        may_unmask=actor.may_unmask,
        csrf=csrf_for(request),
    )


@get("/login", role=None, include_in_schema=False)
async def begin_login(request: Asked) -> Response[bytes]:
    """Send the browser to the identity provider."""
    door, people = _console(request)
    try:
        addresses = await people.issuer.addresses()
    except Unavailable as error:
        return _page(503, str(error))
    login = new_login(request.query_params.get("to", "/"))
    base = own_address(request, door)
    oidc = people.oidc
    to = login.address(addresses.authorization_endpoint, oidc.client_id or "", base + _BACK, oidc.scopes)
    return _redirect(to, _cookie(base, _LOGIN, login.packed(), _LOGIN_LASTS, path="/login"))


@get(_BACK, role=None, include_in_schema=False)
async def end_login(request: Asked) -> Response[bytes]:
    """Let in whom the identity provider sends back, if this browser began that login and the person has a role."""
    door, people = _console(request)
    base = own_address(request, door)
    forget = _cookie(base, _LOGIN, "", 0, path="/login")
    try:
        login = returned(request.cookies.get(_LOGIN), request.query_params.get("state", ""))
        id, actor, lasts = await _signed_in(request, door, people, login, base)
    except LoginRefused as error:
        await refuse(request, door, error)
        return _page(403 if isinstance(error, NoRole) else 401, str(error), forget)
    except Unavailable as error:
        return _page(503, str(error), forget)
    await note(request, actor, "login", f"at the console, from {address_of(request)}")
    return _redirect(login.to, _cookie(base, COOKIE, id, lasts), forget)


@post("/logout", role=None, status_code=200)
async def sign_out(request: Asked) -> Response[SignedOut]:
    """End the session of the cookie, on every server. Without a session it is done already."""
    door: Door = request.app.state.door
    id = request.cookies.get(COOKIE, "")
    if door.sessions is None or door.people is None or not id:
        return Response(SignedOut())
    check_same_site(request, door, id)
    session = await door.sessions.end(id)
    if session is not None:
        await note(request, session.actor, "logout", f"from {address_of(request)}")
    base = own_address(request, door)
    return Response(SignedOut(await _end_at_issuer(door.people, base)), cookies=[_cookie(base, COOKIE, "", 0)])


async def _signed_in(request: Asked, door: Door, people: People, login: Login, base: str) -> tuple[str, Actor, int]:
    """The id and the person of a new session, and how many seconds it lasts; the one before it in this browser ends."""
    assert door.sessions is not None  # there is one where there are people
    given = request.query_params
    if "error" in given:
        raise LoginRefused(f"the identity provider refused it: {str(given['error'])[:100]}")
    if given.get("iss", people.oidc.issuer) != people.oidc.issuer:
        raise LoginRefused("another identity provider answered")
    form = {
        "grant_type": "authorization_code",
        "code": given.get("code", ""),
        "redirect_uri": base + _BACK,
        "code_verifier": login.verifier,
    }
    answer = await people.issuer.submit((await people.issuer.addresses()).token_endpoint, form)
    id, session = await door.sessions.begin(answer, login.nonce)
    if before := request.cookies.get(COOKIE):
        await door.sessions.end(before)
    return id, session.actor, int((session.expires_at - session.begun_at).total_seconds())


async def _end_at_issuer(people: People, base: str) -> str | None:
    """Where the browser ends its login at the identity provider, if that has such a place and answers."""
    try:
        place = (await people.issuer.addresses()).end_session_endpoint
    except Unavailable:
        return None
    asked = urlencode({"client_id": people.oidc.client_id or "", "post_logout_redirect_uri": f"{base}/"})
    return f"{place}{'&' if '?' in place else '?'}{asked}" if place else None


def _console(request: Asked) -> tuple[Door, People]:
    door: Door = request.app.state.door
    if door.people is None or door.people.oidc.client_id is None:
        raise NotFoundException(extra={"hint": "people sign in here once access.oidc.issuer and client_id are set"})
    return door, door.people


def _cookie(base: str, name: str, value: str, lasts: int, path: str = "/") -> Cookie:
    secure = base.startswith("https:")
    return Cookie(name, path=path, value=value, max_age=lasts, httponly=True, samesite="lax", secure=secure)


def _redirect(to: str, *cookies: Cookie) -> Response[bytes]:
    return Response(b"", status_code=303, headers={"Location": to}, cookies=list(cookies), media_type="text/plain")


def _page(status: int, why: str, *cookies: Cookie) -> Response[bytes]:
    """What somebody reads whose login came to nothing."""
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Not signed in</title>"
        f"<h1>Not signed in</h1><p>{escape(why)}</p>"
        '<p><a href="/login">Sign in again</a>, or <a href="/">come in with a token</a>.</p></html>'
    )
    return Response(text.encode(), status_code=status, cookies=list(cookies), media_type="text/html")


router = Router("/", route_handlers=[show_login, show_caller, begin_login, end_login, sign_out], tags=["login"])
