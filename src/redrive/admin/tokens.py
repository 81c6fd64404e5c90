"""The routes of tokens: who may come in, for admins."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from litestar import Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from redrive.access.actors import EVERYTHING, Actor, Role, Scope
from redrive.access.tokens import Token, Tokens, UnknownToken
from redrive.errors import NotInScope
from redrive.service import Service

_YEAR = 366 * 86_400


class NewToken(Struct, frozen=True, forbid_unknown_fields=True):
    """Who will use it, what it may do, of what, and for how long."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    role: Role
    scope: Scope = EVERYTHING
    expires_in_seconds: Annotated[float, Meta(gt=0, le=10 * _YEAR)] | None = None
    not_before: Annotated[datetime, Meta(tz=True)] | None = None


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long the secret that it has opens beside the new one."""

    overlap_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] = 0


class Made(Struct, frozen=True):
    """A token, and its text, which cannot be had again."""

    token: Token
    text: str


@get("/", role=Role.ADMIN)
async def list_tokens(tokens: NamedDependency[Tokens], actor: NamedDependency[Actor]) -> list[Token]:
    """Every token that reaches no more than you do, the oldest first; revoked ones included."""
    return [token for token in await tokens.list() if actor.scope.covers(token.scope)]


@post("/", role=Role.ADMIN, status_code=201)
async def create_token(
    tokens: NamedDependency[Tokens],
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    data: JSONBody[NewToken],
) -> Made:
    """Make a token. It reaches no more than you do."""
    if not actor.scope.covers(data.scope):
        raise NotInScope("a token that you make reaches no more than you do: name sources, tenants or systems of yours")
    now = service.app.clock.now()
    begins = max(now, data.not_before or now)
    if begins - now > timedelta(seconds=_YEAR):
        raise NotInScope("a token begins within a year")
    expires = None if data.expires_in_seconds is None else begins + timedelta(seconds=data.expires_in_seconds)
    token, text = await tokens.create(
        data.name, data.role, scope=data.scope, expires_at=expires, not_before=data.not_before
    )
    await service.note(actor, "token create", f"{token.id} {token.name} {token.role}")
    return Made(token, text)


@post("/{id:str}/rotate", role=Role.ADMIN, status_code=200)
async def rotate_token(
    tokens: NamedDependency[Tokens],
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    id: FromPath[str],
    data: JSONBody[Rotation],
) -> Made:
    """Give it another secret; the one it has opens until they no longer overlap."""
    await _check(tokens, actor, id)
    token, text = await tokens.rotate(id, overlap=timedelta(seconds=data.overlap_seconds))
    await service.note(actor, "token rotate", f"{token.id} {token.name}")
    return Made(token, text)


@delete("/{id:str}", role=Role.ADMIN, status_code=200)
async def revoke_token(
    tokens: NamedDependency[Tokens], service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]
) -> Token:
    """From now on it opens nothing, on every server."""
    await _check(tokens, actor, id)
    token = await tokens.revoke(id)
    await service.note(actor, "token revoke", f"{token.id} {token.name}")
    return token


async def _check(tokens: Tokens, actor: Actor, id: str) -> None:
    """A token that reaches more than the actor does not exist."""
    if not any(token.id == id and actor.scope.covers(token.scope) for token in await tokens.list()):
        raise UnknownToken(id)


router = Router("/api/tokens", route_handlers=[list_tokens, create_token, rotate_token, revoke_token], tags=["tokens"])
