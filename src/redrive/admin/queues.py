"""The routes of queues and workers: what is paused, who works on what, and how the messages of a source stand."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.admin.letters import Limit
from redrive.flow.pauses import SourcePause
from redrive.forensics.held import HeldView
from redrive.forensics.queue import QueuePage
from redrive.forensics.workers import WorkerView
from redrive.service import PauseReport, Service
from redrive.transports.base import QueueState

State = Annotated[QueueState | None, QueryParameter(name="state")]  # `state` itself is a name of Litestar's
_Name = Annotated[str, Meta(min_length=1, max_length=1000)]


class Pausing(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be paused, and why."""

    source: _Name
    why: Annotated[str, Meta(max_length=2000)] = ""
    seconds: Annotated[float, Meta(gt=0, le=366 * 86_400)] | None = None  # after which it goes on by itself
    transport: _Name | None = None  # where two have a source of that name
    force: bool = False  # also a source that nobody knows yet


class Resuming(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to go on."""

    source: _Name
    transport: _Name | None = None


class Resumed(Struct, frozen=True):
    """The pause that was ended; none, if it was not paused."""

    ended: SourcePause | None


@get("/pauses", role=Role.VIEWER)
async def list_pauses(service: NamedDependency[Service]) -> list[SourcePause]:
    """Which sources are paused, by whom, since when and why; the longest first."""
    return await service.pauses()


@post("/pauses", role=Role.OPERATOR, status_code=200)
async def pause_source(
    service: NamedDependency[Service], actor: NamedDependency[Actor], data: JSONBody[Pausing]
) -> PauseReport:
    """No worker receives from that source until it is resumed. If somebody was first, his pause stays, and is shown."""
    span = None if data.seconds is None else timedelta(seconds=data.seconds)
    return await service.pause(
        data.source, actor=actor, why=data.why, span=span, transport=data.transport, force=data.force
    )


@post("/pauses/resume", role=Role.OPERATOR, status_code=200)
async def resume_source(
    service: NamedDependency[Service], actor: NamedDependency[Actor], data: JSONBody[Resuming]
) -> Resumed:
    """It goes on, whoever has paused it."""
    return Resumed(await service.resume(data.source, actor=actor, transport=data.transport))


@get("/held-keys", role=Role.VIEWER)
async def list_held_keys(
    service: NamedDependency[Service], source: FromQuery[str | None] = None, limit: Limit = 50
) -> list[HeldView]:
    """Keys of which a message is dead, with how many wait behind it; the largest bundle first."""
    return await service.held(source, limit=limit)


@get("/workers", role=Role.VIEWER)
async def list_workers(service: NamedDependency[Service], patiently: FromQuery[bool] = False) -> list[WorkerView]:
    """Who works on what, since when, with how many messages in hand. A worker that was killed is lost after some
    seconds, and forgotten after a day. `patiently` looks at one that seems lost until it has had time for a beat."""
    return await service.workers(patiently=patiently)


@get("/queue", role=Role.VIEWER)
async def show_queue(
    service: NamedDependency[Service],
    source: FromQuery[str],
    stands: State = None,
    after: FromQuery[str | None] = None,
    limit: Limit = 50,
    transport: FromQuery[str | None] = None,
) -> QueuePage:
    """How the messages of a source stand, redacted: ready, delayed, leased and by whom. Leases and changes nothing."""
    return await service.queue(source, state=stands, after=after, limit=limit, transport=transport)


router = Router(
    "/api",
    route_handlers=[list_pauses, pause_source, resume_source, list_held_keys, list_workers, show_queue],
    tags=["queues"],
)
