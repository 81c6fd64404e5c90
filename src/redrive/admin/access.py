"""The door of the HTTP API: every route names the role it needs, and every answer is safe to show in a browser."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.access.tokens import Role, Token, Tokens
from redrive.admin.problems import SAFE, Refused, problem
from redrive.errors import ConfigError


class Door(Struct, frozen=True):
    """Who may come in, and whether only this machine can knock."""

    tokens: Tokens
    loopback: bool


class Needs:
    """The role that a route needs; None: it is open to everybody."""

    def __init__(self, role: Role | None, *, free_on_loopback: bool = False) -> None:
        self.role = role
        self._free_on_loopback = free_on_loopback

    async def __call__(self, request: Request) -> None:
        door: Door = request.app.state.door
        if self.role is None or (self._free_on_loopback and door.loopback):
            return
        token = await _token(request, door.tokens)
        if not token.role.allows(self.role):
            raise Refused(
                403,
                f"this needs the role {self.role}, and {token.name!r} is {token.role}",
                f"redrive token create --role {self.role} --name …",
                f'Bearer realm="redrive", error="insufficient_scope", scope="{self.role}"',
            )
        request.state.token = token


def needs(role: Role | None, *, free_on_loopback: bool = False) -> Any:
    """For `dependencies=[needs(Role.OPERATOR)]`."""
    return Depends(Needs(role, free_on_loopback=free_on_loopback))


def actor_of(request: Request) -> str:
    """Who asks, for the audit trail."""
    token: Token = request.state.token
    return f"{token.name} ({token.id})"


async def _token(request: Request, tokens: Tokens) -> Token:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if not text or scheme.lower() != "bearer":
        raise Refused(
            401,
            "this needs a token",
            "send `Authorization: Bearer rdr_…`; `redrive token create` makes one",
            'Bearer realm="redrive"',
        )
    token = await tokens.check(text.strip())
    if token is None:
        raise Refused(
            401,
            "this token is unknown or revoked",
            "`redrive token list` shows those there are; a one-time token ends with the server that printed it",
            'Bearer realm="redrive", error="invalid_token"',
        )
    return token


def role_of(route: APIRoute) -> Needs | None:
    """What the route says it needs; None if it says nothing."""
    return next((one.call for one in route.dependant.dependencies if isinstance(one.call, Needs)), None)


def check_roles(routes: Iterable[Any]) -> None:
    """A route that names no role is a hole, so an API that has one does not start."""
    for route in api_routes(routes):
        if not isinstance(route, APIRoute) or role_of(route) is None:
            path = getattr(route, "path", route)
            raise ConfigError(f"the route {path} names no role: give it dependencies=[needs(Role.VIEWER)]")


def api_routes(routes: Iterable[Any]) -> Iterator[Any]:
    """Every route, those of included routers too (newer FastAPI keeps them behind `original_router`)."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from api_routes(inner.routes)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Around everything: safe headers on each answer, and on loopback only requests that mean this machine.

    A page of another site can make a browser ask 127.0.0.1 under a name of its own (DNS rebinding), and would be
    taken for ours; the Host header gives it away.
    """

    def __init__(self, app: ASGIApp, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE.items():
                    headers.setdefault(name, value)
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if self._loopback and not is_loopback(_without_port(host)):
            refused = problem(
                421,
                f"this server answers as localhost, not as {host!r}",
                "behind a proxy, let it send `Host: localhost`, or listen on another address with `--host`",
            )
            await refused(scope, receive, send_safely)
        else:
            await self._app(scope, receive, send_safely)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
