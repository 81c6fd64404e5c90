"""Who asks: the token or the person of a request, and who failed to come in."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from msgspec import Struct, field

from redrive.access.actors import Actor, Role, Via
from redrive.access.browser import csrf_of
from redrive.access.claims import LoginRefused, NoRole, looks_signed
from redrive.access.logins import Logins
from redrive.access.tokens import Token, actor_of_token
from redrive.access.trail import Phase
from redrive.admin.problems import Refused
from redrive.errors import Unavailable
from redrive.service import Service

if TYPE_CHECKING:
    from redrive.access.people import People  # need an extra
    from redrive.access.sessions import Session, Sessions

Connection = ASGIConnection[Any, Any, Any, Any]
COOKIE = "redrive_session"
CSRF = "x-csrf-token"
_READS = ("GET", "HEAD")
_under_way: set[asyncio.Task[Any]] = set()  # the event loop itself forgets a task that nobody holds


class ChecksTokens(Protocol):
    """Knows who a token is: those of a store, or another process that has one."""

    async def check(self, text: str) -> Token | None:
        """The token of that text; None if there is none, or it is revoked."""
        ...


class Door(Struct, frozen=True):
    """The tokens and people that are let in, whether only this machine can reach the server, and who failed."""

    tokens: ChecksTokens
    loopback: bool
    logins: Logins = field(default_factory=Logins)
    people: People | None = None
    sessions: Sessions | None = None


async def caller(connection: Connection, door: Door) -> Actor:
    """Who asks; Refused if nobody does, or nobody who is known."""
    text = _bearer(connection)
    if not text and door.sessions is not None and (id := connection.cookies.get(COOKIE)):
        return (await _session(connection, door, door.sessions, id)).actor
    if not text:
        raise Refused(
            401,
            "this needs a token",
            "send `Authorization: Bearer rdr_…`; `redrive token create` makes one",
            'Bearer realm="redrive"',
        )
    if door.people is not None and looks_signed(text):
        return await _person(connection, door, door.people, text)
    token = await door.tokens.check(text)
    if token is None:
        await door.logins.failed(address_of(connection))
        raise Refused(
            401,
            "this token is unknown or revoked",
            "`redrive token list` shows those there are; a one-time token ends with the server that printed it",
            'Bearer realm="redrive", error="invalid_token"',
        )
    return actor_of_token(token)


async def is_known(connection: Connection, door: Door) -> bool:
    """Whether whoever asks is known, for open routes that tell them more; nobody is refused. A wrong token is a failed
    login here, too: otherwise these routes would be the place to try them."""
    text = _bearer(connection)
    if not text:
        with suppress(LoginRefused, Unavailable):
            id = connection.cookies.get(COOKIE, "")
            return door.sessions is not None and await _looked_up(connection, door.sessions, id) is not None
        return False
    if door.people is not None and looks_signed(text):
        try:
            await door.people.check(text)
        except Unavailable:
            return False
        except LoginRefused:
            await door.logins.failed(address_of(connection))
            return False
        return True
    if await door.tokens.check(text) is None:
        await door.logins.failed(address_of(connection))
        return False
    return True


async def known_by_now(connection: Connection) -> Actor | None:
    """Who asks, as of now, for an answer that lasts: a token may be revoked meanwhile, a login end, a role be taken.

    None: nobody that is let in. An identity provider that is away changes nobody: they stay who they were.
    """
    door: Door = connection.app.state.door
    text, id = _bearer(connection), connection.cookies.get(COOKIE, "")
    try:
        if door.people is not None and looks_signed(text):
            return (await door.people.check(text))[0]
        if not text and door.sessions is not None:
            session = await _looked_up(connection, door.sessions, id)
            return None if session is None else session.actor
    except LoginRefused:
        return None
    except Unavailable:
        was: Actor | None = connection.scope.get("auth")
        return was
    token = await door.tokens.check(text)
    return None if token is None else actor_of_token(token)


async def is_taken_back(connection: Connection, was: Actor) -> bool:
    """Whether somebody is let in no more, or as another, in the middle of an answer that lasts.

    Nobody takes back an access token of an identity provider: it only expires, and what it began may outlive it.
    """
    if was.via is Via.PERSON and _bearer(connection):
        return False
    return await known_by_now(connection) != was


def login_of(connection: Connection) -> str:
    """What somebody came in with, as a fingerprint: one person has several logins, and each ends by itself."""
    return hashlib.sha256((_bearer(connection) or connection.cookies.get(COOKIE, "")).encode()).hexdigest()


def check_same_site(connection: Connection, door: Door, id: str) -> None:
    """Refuse what a page of another site lets a browser send with the cookie of a session."""
    site, origin = (connection.headers.get(name, "") for name in ("sec-fetch-site", "origin"))
    own = own_address(connection, door)
    if site not in ("", "same-origin") or (origin and origin != _origin(own)):
        raise Refused(
            403,
            "another site sent this",
            f"this server takes itself for {own}: behind a proxy, set access.oidc.console to what browsers see",
        )
    if not hmac.compare_digest(connection.headers.get(CSRF, "").encode(), csrf_of(id).encode()):
        raise Refused(
            403, "this write does not prove that it is the page's own", f"send `csrf` of GET /api/me as {CSRF}"
        )


def csrf_for(connection: Connection) -> str | None:
    """What proves a write of whoever asks; None if it has no session, and so needs none."""
    door: Door = connection.app.state.door
    id = connection.cookies.get(COOKIE)
    if door.sessions is None or _bearer(connection) or not id:
        return None
    return csrf_of(id)


def own_address(connection: Connection, door: Door) -> str:
    """Where browsers find this server, without a slash at the end."""
    set = door.people.oidc.console if door.people is not None else None
    return (set or f"{connection.url.scheme}://{connection.headers.get('host', '')}").rstrip("/")


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}".lower()


async def note(connection: Connection, actor: Actor, action: str, detail: str, outcome: Phase = Phase.DONE) -> None:
    """Write down who came in, or asked for what it may not have. A store that is away makes no error of a refusal."""
    service: Service | None = connection.app.state.get("service")
    if service is not None:
        with suppress(Unavailable):
            await service.note(actor, action, detail, outcome=outcome)


async def refuse(connection: Connection, door: Door, error: LoginRefused) -> None:
    """Write down a refused login, and return when it may be answered.

    Who has a token of the identity provider is named each time. Of what anybody could send (no good signature) the
    trail has the 1st, 2nd, 4th, 8th… try from an address, so that nobody fills it from outside.
    """
    address = address_of(connection)
    times = await door.logins.failed(address)
    if error.who is not None or times & (times - 1) == 0:
        detail = f"from {address}: {error}" + ("" if times == 1 else f" (try {times} from there)")
        await note(connection, error.who or _nobody(connection), "login", detail, Phase.REFUSED)


def address_of(connection: Connection) -> str:
    """The address that asks; empty if that is not known."""
    return connection.client.host if connection.client else ""


async def _person(connection: Connection, door: Door, people: People, text: str) -> Actor:
    try:
        actor, is_new = await people.check(text)
    except LoginRefused as error:
        await refuse(connection, door, error)
        _turn_away(error)
    if is_new:
        await note(connection, actor, "login", f"with an access token, from {address_of(connection)}")
    return actor


async def _session(connection: Connection, door: Door, sessions: Sessions, id: str) -> Session:
    """The session of a cookie, and of nothing that another site could have sent."""
    try:
        session = await _looked_up(connection, sessions, id)
    except LoginRefused as error:
        _turn_away(error)
    if session is None:
        challenge = 'Bearer realm="redrive"'
        raise Refused(401, "this login has ended", "sign in again with the button of the console", challenge)
    if connection.scope.get("method") not in _READS:
        check_same_site(connection, door, id)
    return session


async def _looked_up(connection: Connection, sessions: Sessions, id: str) -> Session | None:
    """The session of that id; LoginRefused, once and in the trail, if this ended it.

    It is looked up to the end though the browser leaves meanwhile: an identity provider may give out another refresh
    token, and whoever did not keep that one would have signed the person out.
    """

    async def check() -> Session | None:
        try:
            return await sessions.check(id)
        except LoginRefused as error:
            await note(connection, error.who or _nobody(connection), "login", str(error), Phase.REFUSED)
            raise

    checking = asyncio.create_task(check())
    _under_way.add(checking)
    checking.add_done_callback(_under_way.discard)
    return await asyncio.shield(checking)


def _nobody(connection: Connection) -> Actor:
    name = f"somebody at {address_of(connection) or 'an unknown address'}"
    return Actor(id="", name=name, role=Role.VIEWER, via=Via.PERSON)


def _turn_away(error: LoginRefused) -> NoReturn:
    if isinstance(error, NoRole):
        raise Refused(403, str(error), "ask whoever runs the identity provider for a role of Redrive") from None
    challenge = 'Bearer realm="redrive", error="invalid_token"'
    raise Refused(401, str(error), "sign in again: `redrive login`, or the button of the console", challenge) from None


def _bearer(connection: Connection) -> str:
    scheme, _, text = connection.headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""
