"""The routes of replays: what one would do, starting it, and what became of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.admin.background import Background
from redrive.admin.costly import has_text
from redrive.admin.letters import Limit, Named
from redrive.errors import UsageError
from redrive.flow.guard import MOST, Guard
from redrive.flow.replay import Replay
from redrive.flow.replay_document import DEADLINE
from redrive.flow.replay_document import NewPace as Pace
from redrive.forensics.query import Query
from redrive.service import Plan, ReplayReport, Service
from redrive.stores.base import Cursor, Entry, EntryStatus

Percent = Annotated[float, Meta(ge=0, le=100)]
Rate = Annotated[float, Meta(gt=0)]


class Selection(Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters, and at what rate."""

    query: Query
    rate: Rate | None = None


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters, how fast, how carefully, why; an id of your own makes asking twice the same as asking once.

    More than 100 letters are guarded, unless `guarded` is false; `canary`, `ramp` and `guard` guard fewer, too.
    """

    query: Query
    rate: Rate | None = None
    reason: Annotated[str, Meta(max_length=1000)] = ""
    all: bool = False  # an empty query is meant
    id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    canary: Annotated[int, Meta(ge=1, le=MOST)] | None = None  # letters that go first
    ramp: tuple[Percent, ...] | None = None  # percent of the selection that are gone after each further step
    guard: Percent | None = None  # when more percent of a step die again, it pauses
    guarded: bool | None = None
    order: bool = True  # letters of one key one after the other, each when the one before is resolved
    deadline_seconds: Annotated[float, Meta(ge=0, le=366 * 86_400)] | None = None  # without an outcome: then it pauses


class Why(Struct, frozen=True, forbid_unknown_fields=True):
    """Why it is paused, for whoever finds it."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class NewPace(Struct, frozen=True, forbid_unknown_fields=True):
    """How fast and how carefully from now on. What is not given stays as it is."""

    rate: Rate | None = None
    unlimited: bool = False  # as fast as the transport takes them
    guard: Percent | None = None
    guarded: bool | None = None  # false: the rest goes without waiting for outcomes


class Entries(Struct, frozen=True):
    """A page of the ledger."""

    entries: list[Entry]
    after: Cursor | None


@post("/plan", role=Role.VIEWER, status_code=200, reads=True, costly=True)
async def plan_replay(service: NamedDependency[Service], data: JSONBody[Selection]) -> Plan:
    """What a replay of that query would send, how long at least, and what speaks against it. Changes nothing."""
    return await service.plan(data.query, rate=data.rate)


@post("/", role=Role.OPERATOR, status_code=202, costly=True)
async def start_replay(
    service: NamedDependency[Service],
    background: NamedDependency[Background],
    actor: NamedDependency[Actor],
    data: JSONBody[Order],
) -> Replay:
    """The selection is frozen when this answers, its size is in `total`; the letters go out in the background. One of
    more than 5,000 letters answers at once, while it is `freezing`: that goes on in the background, whoever dies, of
    exactly the letters that were there when it was asked for."""
    replay = await service.replay(
        data.query,
        every=data.all,
        later=True,
        actor=actor,
        rate=data.rate,
        reason=data.reason,
        id=data.id,
        guard=_guard_of(data),
        guard_many=data.guarded is not False,
        ordered=data.order,
        deadline=DEADLINE if data.deadline_seconds is None else timedelta(seconds=data.deadline_seconds),
    )
    background.run(replay.id)
    return replay


@post("/of-letters", role=Role.OPERATOR, status_code=202)
async def start_retry(
    service: NamedDependency[Service],
    background: NamedDependency[Background],
    actor: NamedDependency[Actor],
    data: JSONBody[Named],
) -> Replay:
    """A replay of exactly these letters, in the background. One that cannot be sent stops all of them."""
    replay = await service.start_retry(data.ids, actor=actor)
    background.run(replay.id)
    return replay


@get("/", role=Role.VIEWER)
async def list_replays(service: NamedDependency[Service], limit: Limit = 50) -> list[Replay]:
    """Newest first."""
    return await service.list_replays(limit)


@get("/{id:str}", role=Role.VIEWER)
async def show_replay(service: NamedDependency[Service], id: FromPath[str]) -> ReplayReport:
    """It, and how many of its letters were sent, resolved, failed or skipped."""
    return await service.replay_report(id)


@get("/{id:str}/entries", role=Role.VIEWER, costly=has_text)
async def list_entries(
    service: NamedDependency[Service],
    id: FromPath[str],
    status: FromQuery[EntryStatus | None] = None,
    text: Annotated[str, QueryParameter(max_length=200)] = "",
    after: FromQuery[Cursor | None] = None,
    limit: Limit = 50,
) -> Entries:
    """What became of each letter, in the order they were selected; with `text` those that have it in the id of the
    letter or in why. A page may be short, or empty, while `after` says that there are more."""
    found, rest = await service.replay_entries(id, status=status, text=text, after=after, limit=limit)
    return Entries(list(found), rest)


@post("/{id:str}/pause", role=Role.OPERATOR, status_code=200)
async def pause_replay(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Why]
) -> ReplayReport:
    """Send no more of it until somebody resumes it."""
    return await service.pause_replay(id, actor=actor, why=data.reason)


@post("/{id:str}/resume", role=Role.OPERATOR, status_code=202)
async def resume_replay(
    service: NamedDependency[Service],
    background: NamedDependency[Background],
    actor: NamedDependency[Actor],
    id: FromPath[str],
) -> ReplayReport:
    """Go on with it, in the background: a step that paused it is behind it, the next is guarded as before."""
    await service.resume_replay(id, actor=actor)
    background.run(id)
    return await service.replay_report(id)


@post("/{id:str}/pace", role=Role.OPERATOR, status_code=200)
async def pace_replay(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[NewPace]
) -> ReplayReport:
    """Change how fast it goes, and how carefully, while it runs or is paused."""
    if data == NewPace():
        raise UsageError("what is to change? Give a rate or `unlimited`, a guard or `guarded`")
    if (data.rate is not None and data.unlimited) or (data.guard is not None and data.guarded is False):
        raise UsageError("give a rate or `unlimited`, and a guard or `guarded: false`, but not both of them")
    share = None if data.guard is None else data.guard / 100
    pace = Pace(rate=data.rate, unlimited=data.unlimited, share=share, guarded=data.guarded)
    return await service.pace_replay(id, pace, actor=actor)


def _guard_of(order: Order) -> Guard | None:
    share = None if order.guard is None else order.guard / 100
    asked = {"canary": order.canary, "ramp": order.ramp, "share": share}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if given and order.guarded is False:
        raise UsageError("guarded: false sends all at once: it goes with none of canary, ramp and guard")
    return Guard(**given) if given or order.guarded else None


@post("/{id:str}/cancel", role=Role.OPERATOR, status_code=200)
async def cancel_replay(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]
) -> ReplayReport:
    """Send no more of it. What was sent keeps its course."""
    return await service.cancel_replay(id, actor=actor)


router = Router(
    "/api/replays",
    route_handlers=[
        plan_replay,
        start_replay,
        start_retry,
        list_replays,
        show_replay,
        list_entries,
        pause_replay,
        resume_replay,
        pace_replay,
        cancel_replay,
    ],
    tags=["replays"],
)
