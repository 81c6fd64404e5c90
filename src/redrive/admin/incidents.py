"""The routes of incidents: seeing them, and saying that somebody has seen them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from msgspec import Meta, Struct

from redrive.access.tokens import Role
from redrive.admin.access import actor_of
from redrive.admin.letters import Limit, service_of
from redrive.admin.openapi import operation
from redrive.admin.wire import answer, parameters, read_body
from redrive.alerts.incidents import Incident, IncidentState

router = APIRouter(prefix="/api/incidents", tags=["incidents"])


class Chosen(Struct, frozen=True):
    """Incidents in these states only."""

    states: tuple[IncidentState, ...] | None = None


class Remark(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be written down."""

    text: Annotated[str, Meta(min_length=1, max_length=2000)]


@router.get("", **operation(Role.VIEWER, list[Incident], reads=[Chosen, Limit]))
async def list_incidents(request: Request) -> Response:
    """The open ones first, then the newest."""
    chosen, page = parameters(request, Chosen, Limit)
    return answer(await service_of(request).incidents.list(states=chosen.states, limit=page.limit))


@router.get("/{id}", **operation(Role.VIEWER, Incident))
async def show_incident(request: Request, id: str) -> Response:
    """By its id, or the beginning of it."""
    parameters(request)
    return answer(await service_of(request).incidents.get(id))


@router.post("/{id}/acknowledge", **operation(Role.OPERATOR, Incident))
async def acknowledge_incident(request: Request, id: str) -> Response:
    """You work on it: it is not told again until it is resolved. PagerDuty hears of it."""
    return answer(await service_of(request).acknowledge(id, actor=actor_of(request)))


@router.post("/{id}/resolve", **operation(Role.OPERATOR, Incident))
async def resolve_incident(request: Request, id: str) -> Response:
    """It is over. If it happens again, it is opened again."""
    return answer(await service_of(request).resolve(id, actor=actor_of(request)))


@router.post("/{id}/notes", **operation(Role.OPERATOR, Incident, takes=Remark))
async def annotate_incident(request: Request, id: str) -> Response:
    """Write something down beside it."""
    remark = await read_body(request, Remark)
    return answer(await service_of(request).annotate(id, remark.text, actor=actor_of(request)))
