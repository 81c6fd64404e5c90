"""The door of the HTTP API: every route names the role it needs, and every answer is safe to show in a browser."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from litestar import Litestar, Request
from litestar.datastructures import MutableScopeHeaders
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import Message, Scope

from redrive.access.actors import Actor, Role
from redrive.access.trail import Phase
from redrive.admin.callers import Connection, Door, caller, is_known, note
from redrive.admin.problems import Refused
from redrive.errors import ConfigError

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
    actor = await caller(connection, door)
    what = f"{connection.scope.get('method', '')} {connection.scope['path_template']}"
    if not actor.role.allows(role):
        await note(connection, actor, "request", f"{what} needs the role {role}", Phase.REFUSED)
        raise Refused(
            403,
            f"this needs the role {role}, and {actor.name!r} is {actor.role}",
            f"redrive token create --role {role} --name …",
            f'Bearer realm="redrive", error="insufficient_scope", scope="{role}"',
        )
    if handler.opt.get("whole") and not actor.scope.is_everything:
        await note(connection, actor, "request", f"{what} is of the whole installation", Phase.REFUSED)
        raise Refused(
            403,
            f"this is of the whole installation, and {actor.name!r} reaches a part of it",
            "ask somebody whose token has no --source, --tenant or --system",
        )
    connection.scope["auth"] = actor


async def sees_details(connection: Connection) -> bool:
    """Whether an open route may tell this one more than yes or no: it is known, or only this machine can ask."""
    door: Door = connection.app.state.door
    return door.loopback or await is_known(connection, door)


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
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
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
