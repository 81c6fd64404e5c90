"""The routes of incidents: seeing them, and saying that somebody has seen them."""

from __future__ import annotations

from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.admin.letters import Limit
from redrive.alerts.incidents import Incident, IncidentState
from redrive.service import Service


class Remark(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be written down."""

    text: Annotated[str, Meta(min_length=1, max_length=2000)]


@get("/", role=Role.VIEWER)
async def list_incidents(
    service: NamedDependency[Service],
    states: FromQuery[tuple[IncidentState, ...] | None] = None,
    limit: Limit = 50,
) -> list[Incident]:
    """The open ones first, then the newest."""
    return list(await service.incidents.list(states=states, limit=limit))


@get("/{id:str}", role=Role.VIEWER)
async def show_incident(service: NamedDependency[Service], id: FromPath[str]) -> Incident:
    """By its id, or the beginning of it."""
    return await service.incidents.get(id)


@post("/{id:str}/acknowledge", role=Role.OPERATOR, status_code=200)
async def acknowledge_incident(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]
) -> Incident:
    """You work on it: it is not told again until it is resolved. PagerDuty hears of it."""
    return await service.acknowledge(id, actor=actor)


@post("/{id:str}/resolve", role=Role.OPERATOR, status_code=200)
async def resolve_incident(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]
) -> Incident:
    """It is over. If it happens again, it is opened again."""
    return await service.resolve(id, actor=actor)


@post("/{id:str}/notes", role=Role.OPERATOR, status_code=200)
async def annotate_incident(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Remark]
) -> Incident:
    """Write something down beside it."""
    return await service.annotate(id, data.text, actor=actor)


router = Router(
    "/api/incidents",
    route_handlers=[list_incidents, show_incident, acknowledge_incident, resolve_incident, annotate_incident],
    tags=["incidents"],
)
