"""Who asks: the token or the person of a request, and who failed to come in."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from litestar.connection import ASGIConnection
from msgspec import Struct, field

from redrive.access.actors import Actor, Role, Via
from redrive.access.claims import LoginRefused, NoRole, looks_signed
from redrive.access.logins import Logins
from redrive.access.tokens import Token, actor_of_token
from redrive.access.trail import Phase
from redrive.admin.problems import Refused
from redrive.errors import Unavailable
from redrive.service import Service

if TYPE_CHECKING:
    from redrive.access.people import People  # needs an extra

Connection = ASGIConnection[Any, Any, Any, Any]


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


async def caller(connection: Connection, door: Door) -> Actor:
    """Who asks; Refused if nobody does, or nobody who is known."""
    text = _bearer(connection)
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
    """Whether whoever asks is known, for open routes that tell them more; nobody is refused."""
    text = _bearer(connection)
    if door.people is not None and looks_signed(text):
        with suppress(LoginRefused, Unavailable):
            await door.people.check(text)
            return True
        return False
    return bool(text) and await door.tokens.check(text) is not None


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
        nobody = Actor(id="", name=f"somebody at {address or 'an unknown address'}", role=Role.VIEWER, via=Via.PERSON)
        detail = f"from {address}: {error}" + ("" if times == 1 else f" (try {times} from there)")
        await note(connection, error.who or nobody, "login", detail, Phase.REFUSED)


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


def _turn_away(error: LoginRefused) -> NoReturn:
    if isinstance(error, NoRole):
        raise Refused(403, str(error), "ask whoever runs the identity provider for a role of Redrive") from None
    challenge = 'Bearer realm="redrive", error="invalid_token"'
    raise Refused(401, str(error), "sign in again: `redrive login`, or the button of the console", challenge) from None


def _bearer(connection: Connection) -> str:
    scheme, _, text = connection.headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""
