"""The routes of tokens: who may come in, for admins."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from litestar import Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from redrive.access.actors import EVERYTHING, Actor, Role, Scope
from redrive.access.tokens import Token, Tokens
from redrive.service import Service
from redrive.service.tokens import LONGEST, LONGEST_NAME, YEAR, KeptTokens
from redrive.service.tokens import NewToken as Wanted

_YEAR = YEAR.total_seconds()


class NewToken(Struct, frozen=True, forbid_unknown_fields=True):
    """Who will use it, what it may do, of what, and for how long."""

    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    role: Role
    scope: Scope = EVERYTHING
    expires_in_seconds: Annotated[float, Meta(gt=0, le=LONGEST.total_seconds())] | None = None
    not_before: Annotated[datetime, Meta(tz=True)] | None = None
    begins_in_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] | None = None  # the same as a span
    unmask: bool = False  # it may see secrets, one letter at a time and with a reason; only who may can give it


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long the secret that it has opens beside the new one."""

    overlap_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] = 0


class Made(Struct, frozen=True):
    """A token, and its text, which cannot be had again."""

    token: Token
    text: str


@get("/", role=Role.ADMIN)
async def list_tokens(
    tokens: NamedDependency[Tokens], service: NamedDependency[Service], actor: NamedDependency[Actor]
) -> list[Token]:
    """Every token that reaches no more than you do, the oldest first; revoked ones included."""
    return await KeptTokens(service, tokens).list(actor=actor)


@post("/", role=Role.ADMIN, status_code=201)
async def create_token(
    tokens: NamedDependency[Tokens],
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    data: JSONBody[NewToken],
) -> Made:
    """Make a token. It reaches no more than you do, and sees no more."""
    wanted = Wanted(
        name=data.name,
        role=data.role,
        scope=data.scope,
        unmask=data.unmask,
        begins_in=_span(data.begins_in_seconds),
        not_before=data.not_before,
        lives_for=_span(data.expires_in_seconds),
    )
    return Made(*await KeptTokens(service, tokens).create(wanted, actor=actor))


@post("/{id:str}/rotate", role=Role.ADMIN, status_code=200)
async def rotate_token(
    tokens: NamedDependency[Tokens],
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    id: FromPath[str],
    data: JSONBody[Rotation],
) -> Made:
    """Give it another secret; the one it has opens until they no longer overlap."""
    overlap = timedelta(seconds=data.overlap_seconds)
    return Made(*await KeptTokens(service, tokens).rotate(id, overlap=overlap, actor=actor))


@delete("/{id:str}", role=Role.ADMIN, status_code=200)
async def revoke_token(
    tokens: NamedDependency[Tokens], service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]
) -> Token:
    """From now on it opens nothing, on every server."""
    return await KeptTokens(service, tokens).revoke(id, actor=actor)


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


router = Router("/api/tokens", route_handlers=[list_tokens, create_token, rotate_token, revoke_token], tags=["tokens"])
