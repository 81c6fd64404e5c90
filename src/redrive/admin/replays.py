"""The routes of replays: what one would do, starting it, and what became of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from msgspec import Meta, Struct

from redrive.access.tokens import Role
from redrive.admin.access import actor_of
from redrive.admin.background import Background
from redrive.admin.letters import Limit, Paging, service_of
from redrive.admin.openapi import operation
from redrive.admin.wire import answer, parameters, read_body, zoned_all
from redrive.flow.replay import Replay
from redrive.forensics.query import Query
from redrive.service import Plan, ReplayReport
from redrive.stores.base import Cursor, Entry, EntryStatus

router = APIRouter(prefix="/api/replays", tags=["replays"])


class Selection(Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters."""

    query: Query


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters, how fast, why; an id of your own makes asking twice the same as asking once."""

    query: Query
    rate: Annotated[float, Meta(gt=0)] | None = None
    reason: Annotated[str, Meta(max_length=1000)] = ""
    id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class Status(Struct, frozen=True):
    """Entries of one status only."""

    status: EntryStatus | None = None


class Entries(Struct, frozen=True):
    """A page of the ledger."""

    entries: list[Entry]
    after: Cursor | None


@router.post("/plan", **operation(Role.VIEWER, Plan, takes=Selection))
async def plan_replay(request: Request) -> Response:
    """What a replay of that query would send. Changes nothing."""
    body = await read_body(request, Selection)
    zoned_all(body.query)
    return answer(await service_of(request).plan(body.query))


@router.post("", **operation(Role.OPERATOR, Replay, takes=Order, status=202))
async def start_replay(request: Request) -> Response:
    """The selection is frozen when this answers, its size is in `total`; the letters go out in the background."""
    order = await read_body(request, Order)
    zoned_all(order.query)
    replay = await service_of(request).replay(
        order.query, actor=actor_of(request), rate=order.rate, reason=order.reason, id=order.id
    )
    background: Background = request.app.state.background
    background.run(replay.id)
    return answer(replay, 202)


@router.get("", **operation(Role.VIEWER, list[Replay], reads=[Limit]))
async def list_replays(request: Request) -> Response:
    """Newest first."""
    (page,) = parameters(request, Limit)
    return answer(await service_of(request).replays.list(page.limit))


@router.get("/{id}", **operation(Role.VIEWER, ReplayReport))
async def show_replay(request: Request, id: str) -> Response:
    """It, and how many of its letters were sent, resolved, failed or skipped."""
    parameters(request)
    return answer(await service_of(request).replay_report(id))


@router.get("/{id}/entries", **operation(Role.VIEWER, Entries, reads=[Status, Paging]))
async def list_entries(request: Request, id: str) -> Response:
    """What became of each letter, in the order they were selected."""
    only, page = parameters(request, Status, Paging)
    found, after = await service_of(request).replay_entries(id, status=only.status, after=page.after, limit=page.limit)
    return answer(Entries(list(found), after))


@router.post("/{id}/cancel", **operation(Role.OPERATOR, ReplayReport))
async def cancel_replay(request: Request, id: str) -> Response:
    """Send no more of it. What was sent keeps its course."""
    return answer(await service_of(request).cancel_replay(id, actor=actor_of(request)))
