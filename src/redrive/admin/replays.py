"""The routes of replays: what one would do, starting it, and what became of it."""

from __future__ import annotations

from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta, Struct

from redrive.access.tokens import Role
from redrive.admin.background import Background
from redrive.admin.letters import Limit
from redrive.flow.replay import Replay
from redrive.forensics.query import Query
from redrive.service import Plan, ReplayReport, Service, check_every
from redrive.stores.base import Cursor, Entry, EntryStatus


class Selection(Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters."""

    query: Query


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters, how fast, why; an id of your own makes asking twice the same as asking once."""

    query: Query
    rate: Annotated[float, Meta(gt=0)] | None = None
    reason: Annotated[str, Meta(max_length=1000)] = ""
    all: bool = False  # an empty query is meant
    id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class Entries(Struct, frozen=True):
    """A page of the ledger."""

    entries: list[Entry]
    after: Cursor | None


@post("/plan", role=Role.VIEWER, status_code=200)
async def plan_replay(service: NamedDependency[Service], data: JSONBody[Selection]) -> Plan:
    """What a replay of that query would send. Changes nothing."""
    return await service.plan(data.query)


@post("/", role=Role.OPERATOR, status_code=202)
async def start_replay(
    service: NamedDependency[Service],
    background: NamedDependency[Background],
    actor: NamedDependency[str],
    data: JSONBody[Order],
) -> Replay:
    """The selection is frozen when this answers, its size is in `total`; the letters go out in the background."""
    check_every(data.query, data.all, "replay")
    replay = await service.replay(data.query, actor=actor, rate=data.rate, reason=data.reason, id=data.id)
    background.run(replay.id)
    return replay


@get("/", role=Role.VIEWER)
async def list_replays(service: NamedDependency[Service], limit: Limit = 50) -> list[Replay]:
    """Newest first."""
    return list(await service.replays.list(limit))


@get("/{id:str}", role=Role.VIEWER)
async def show_replay(service: NamedDependency[Service], id: FromPath[str]) -> ReplayReport:
    """It, and how many of its letters were sent, resolved, failed or skipped."""
    return await service.replay_report(id)


@get("/{id:str}/entries", role=Role.VIEWER)
async def list_entries(
    service: NamedDependency[Service],
    id: FromPath[str],
    status: FromQuery[EntryStatus | None] = None,
    after: FromQuery[Cursor | None] = None,
    limit: Limit = 50,
) -> Entries:
    """What became of each letter, in the order they were selected."""
    found, rest = await service.replay_entries(id, status=status, after=after, limit=limit)
    return Entries(list(found), rest)


@post("/{id:str}/cancel", role=Role.OPERATOR, status_code=200)
async def cancel_replay(
    service: NamedDependency[Service], actor: NamedDependency[str], id: FromPath[str]
) -> ReplayReport:
    """Send no more of it. What was sent keeps its course."""
    return await service.cancel_replay(id, actor=actor)


router = Router(
    "/api/replays",
    route_handlers=[plan_replay, start_replay, list_replays, show_replay, list_entries, cancel_replay],
    tags=["replays"],
)
