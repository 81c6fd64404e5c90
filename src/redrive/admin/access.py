"""The door of the HTTP API: every route names the role it needs, and every answer is safe to show in a browser."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol

from litestar import Litestar, Request
from litestar.connection import ASGIConnection
from litestar.datastructures import MutableScopeHeaders
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import Message, Scope
from msgspec import Struct, field

from redrive.access.actors import Actor, Role
from redrive.access.logins import Logins
from redrive.access.tokens import Token, actor_of_token
from redrive.access.trail import Phase
from redrive.admin.problems import Refused
from redrive.errors import ConfigError, Unavailable
from redrive.service import Service

Connection = ASGIConnection[Any, Any, Any, Any]

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""What every answer says to a browser; a file of the console has a policy of its own."""


class ChecksTokens(Protocol):
    """Knows who a token is: those of a store, or another process that has one."""

    async def check(self, text: str) -> Token | None:
        """The token of that text; None if there is none, or it is revoked."""
        ...


class Door(Struct, frozen=True):
    """The tokens that are let in, whether only this machine can reach the server, and who failed to come in."""

    tokens: ChecksTokens
    loopback: bool
    logins: Logins = field(default_factory=Logins)


async def authorize(connection: Connection, handler: BaseRouteHandler) -> None:
    """Let in who has the role that the route names: `@get("/letters", role=Role.VIEWER)`; None is open to everybody.

    `whole=True` lets in those only whose scope is everything: what it tells or does cannot be narrowed.
    `free_on_loopback=True` opens it where only this machine can ask. What names no role lets in nobody: that is
    OPTIONS, which Litestar would answer by itself for every route.
    """
    if "role" not in handler.opt:
        raise MethodNotAllowedException(headers={"allow": _methods_of(connection)})
    door: Door = connection.app.state.door
    role: Role | None = handler.opt["role"]
    if role is None or (door.loopback and handler.opt.get("free_on_loopback")):
        return
    token = await _token(connection, door)
    actor = actor_of_token(token)
    if not actor.role.allows(role):
        await _note_refusal(connection, actor, role)
        raise Refused(
            403,
            f"this needs the role {role}, and {actor.name!r} is {actor.role}",
            f"redrive token create --role {role} --name …",
            f'Bearer realm="redrive", error="insufficient_scope", scope="{role}"',
        )
    if handler.opt.get("whole") and not actor.scope.is_everything:
        raise Refused(
            403,
            f"this is of the whole installation, and {actor.name!r} reaches a part of it",
            "ask somebody whose token has no --source, --tenant or --system",
        )
    connection.scope["auth"] = actor


async def _note_refusal(connection: Connection, actor: Actor, role: Role) -> None:
    """Write down who asked for what it may not have. A store that is away does not turn a refusal into an error."""
    service: Service | None = connection.app.state.get("service")
    if service is None:
        return
    what = f"{connection.scope.get('method', '')} {connection.scope['path_template']} needs the role {role}"
    with suppress(Unavailable):
        await service.note(actor, "request", what, outcome=Phase.REFUSED)


async def sees_details(connection: Connection) -> bool:
    """Whether an open route may tell this one more than yes or no: it has a token, or only this machine can ask."""
    door: Door = connection.app.state.door
    text = _bearer(connection)
    return door.loopback or (bool(text) and await door.tokens.check(text) is not None)


async def known_by_now(connection: Connection) -> Actor | None:
    """Who asks, as the tokens say by now: of an answer that lasts. None: nobody that is let in."""
    token = await connection.app.state.door.tokens.check(_bearer(connection))
    return None if token is None else actor_of_token(token)


def _bearer(connection: Connection) -> str:
    scheme, _, text = connection.headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


async def _token(connection: Connection, door: Door) -> Token:
    text = _bearer(connection)
    if not text:
        raise Refused(
            401,
            "this needs a token",
            "send `Authorization: Bearer rdr_…`; `redrive token create` makes one",
            'Bearer realm="redrive"',
        )
    token = await door.tokens.check(text)
    if token is None:
        await door.logins.failed(connection.client.host if connection.client else "")
        raise Refused(
            401,
            "this token is unknown or revoked",
            "`redrive token list` shows those there are; a one-time token ends with the server that printed it",
            'Bearer realm="redrive", error="invalid_token"',
        )
    return token


def actor_of(request: Request[Any, Actor, Any]) -> Actor:
    """Who asks."""
    return request.auth


def handlers_of(api: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Every route as method, path and handler, without those that answer OPTIONS."""
    for route in api.routes:
        if not isinstance(route, HTTPRoute):
            raise ConfigError(f"the route {route.path} is not HTTP: it could not be asked for its role")
        for method, (handler, _) in route.route_handler_map.items():
            if method != "OPTIONS":
                yield method, route.path_format, handler


def check_roles(api: Litestar) -> None:
    """A route that names no role is a mistake, so an API that has one does not start."""
    for method, path, handler in handlers_of(api):
        if "role" not in handler.opt:
            raise ConfigError(f"the route {path} names no role: write @{method.lower()}(…, role=Role.VIEWER)")


def _methods_of(connection: Connection) -> str:
    path = connection.scope["path_template"]
    return ", ".join(method for method, at, _ in handlers_of(connection.app) if at == path)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def only_this_machine(connection: Connection, handler: BaseRouteHandler) -> None:
    """On loopback, refuse requests that name another host.

    A page of another site can make a browser ask 127.0.0.1 under a name of its own (DNS rebinding), and would be
    taken for ours; the Host header gives it away.
    """
    host = ", ".join(connection.headers.getall("host", []))
    if connection.app.state.door.loopback and not is_loopback(_without_port(host)):
        raise Refused(
            421,
            f"this server answers as localhost, not as {host!r}",
            "behind a proxy, let it send `Host: localhost`, or listen on another address with `--host`",
        )


def _without_port(host: str) -> str:
    """The name or address in a Host header; empty, if the header is anything else than that and perhaps a port."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"]) if found else ""


async def make_safe(message: Message, scope: Scope) -> None:
    """Add the headers that keep an answer safe in a browser, to errors too."""
    if message["type"] == "http.response.start":
        headers = MutableScopeHeaders.from_message(message)
        for name, value in _SAFE.items():
            headers.setdefault(name, value)
