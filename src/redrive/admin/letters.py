"""The routes of letters: seeing them, in groups and one by one, and acting on them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from msgspec import Meta, Struct

from redrive.access.tokens import Role, Token
from redrive.admin.access import actor_of
from redrive.admin.openapi import operation
from redrive.admin.problems import Unreadable
from redrive.admin.wire import answer, parameters, read_body, zoned_all
from redrive.forensics.query import Query
from redrive.forensics.stats import Stats
from redrive.forensics.views import Detail
from redrive.service import ReplayReport, Service, Summaries
from redrive.stores.base import Cursor, Group

router = APIRouter(prefix="/api", tags=["letters"])

Ids = Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]


class Paging(Struct, frozen=True):
    """Where to go on, and how far."""

    after: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class Limit(Struct, frozen=True):
    """How many."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class Named(Struct, frozen=True, forbid_unknown_fields=True):
    """Letters by their ids."""

    ids: Ids


class Selected(Struct, frozen=True, forbid_unknown_fields=True):
    """Letters by their ids, or by a query."""

    ids: Ids | None = None
    query: Query | None = None


class Archived(Struct, frozen=True):
    """How many were archived."""

    archived: int


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


@router.get("/letters", **operation(Role.VIEWER, Summaries, reads=[Query, Paging]))
async def list_letters(request: Request) -> Response:
    """Newest first. A list takes its parameter again and again: `states=pending&states=exhausted`."""
    query, page = parameters(request, Query, Paging)
    return answer(await service_of(request).letters(query, after=page.after, limit=page.limit))


@router.get("/letters/{id}", **operation(Role.VIEWER, Detail))
async def show_letter(request: Request, id: str) -> Response:
    """Every attempt with its stack, headers, body and lineage, redacted. By the letter's id or its message's."""
    parameters(request)
    return answer(await service_of(request).letter(id))


@router.post("/letters/retry", **operation(Role.OPERATOR, ReplayReport, takes=Named))
async def retry_letters(request: Request) -> Response:
    """Send these back now."""
    body = await read_body(request, Named)
    return answer(await service_of(request).retry(body.ids, actor=actor_of(request)))


@router.post("/letters/archive", **operation(Role.OPERATOR, Archived, takes=Selected))
async def archive_letters(request: Request) -> Response:
    """Done with. What is on its way keeps its course."""
    service, body = service_of(request), _one_of(await read_body(request, Selected))
    query = body.query if body.ids is None else await service.named(body.ids)
    return answer(Archived(await service.archive(query or Query(), actor=actor_of(request))))


@router.get("/groups", **operation(Role.VIEWER, list[Group], reads=[Query, Limit]))
async def list_groups(request: Request) -> Response:
    """Letters with one cause are one group; the largest first."""
    query, page = parameters(request, Query, Limit)
    return answer(await service_of(request).groups(query, limit=page.limit))


@router.get("/stats", **operation(Role.VIEWER, Stats))
async def show_stats(request: Request) -> Response:
    """Letters by state, category and source, and how full the queues are."""
    parameters(request)
    return answer(await service_of(request).stats())


@router.get("/sources", **operation(Role.VIEWER, list[str]))
async def list_sources(request: Request) -> Response:
    """Every source that has a handler here, a letter, or a message waiting."""
    parameters(request)
    return answer(sorted(await service_of(request).sources()))


@router.get("/audit", **operation(Role.ADMIN, list[dict[str, Any]], reads=[Limit]))
async def show_audit(request: Request) -> Response:
    """Who did what, newest first."""
    (page,) = parameters(request, Limit)
    return answer(await service_of(request).audit(page.limit))


@router.get("/me", **operation(Role.VIEWER, Token))
async def show_caller(request: Request) -> Response:
    """The token that asks: its name and its role."""
    parameters(request)
    return answer(request.state.token)


def _one_of(body: Selected) -> Selected:
    if (body.ids is None) == (body.query is None):
        raise Unreadable("say which letters, by `ids` or by `query`, and not by both")
    if body.query is not None:
        zoned_all(body.query)
    return body
