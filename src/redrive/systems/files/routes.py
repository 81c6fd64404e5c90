"""The contract's routes for parked messages, for people with the role admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from msgspec import Meta, Struct

from redrive.access.tokens import Role
from redrive.admin.access import actor_of
from redrive.admin.letters import service_of
from redrive.admin.openapi import operation
from redrive.admin.wire import answer, parameters, read_body
from redrive.systems.files.parked import Depth, ParkedQueues, Shown
from redrive.systems.files.settings import FilesSettings
from redrive.transports.rabbitmq.redrive import Redriven

router = APIRouter(prefix="/admin/dlq", tags=["files"])


class Peek(Struct, frozen=True):
    """How many are shown."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 20


class Again(Struct, frozen=True, forbid_unknown_fields=True):
    """How many are sent round."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 10


def _parked(request: Request) -> ParkedQueues:
    """One connection for all requests, made by the first."""
    state = request.app.state
    if not hasattr(state, "parked_files"):
        service = service_of(request)
        state.parked_files = ParkedQueues(service, service.app.settings.of(FilesSettings))
        state.background.closing.append(state.parked_files.aclose)
    found: ParkedQueues = state.parked_files
    return found


@router.get("/queues", **operation(Role.ADMIN, list[Depth]))
async def list_parked_queues(request: Request) -> Response:
    """Every parked queue, and how many messages lie in it."""
    parameters(request)
    return answer(await _parked(request).queues())


@router.get("/queues/{queue}/messages", **operation(Role.ADMIN, list[Shown], reads=[Peek]))
async def peek_parked_messages(request: Request, queue: str) -> Response:
    """The first messages of a parked queue; they stay where and as they are."""
    (peek,) = parameters(request, Peek)
    return answer(await _parked(request).messages(queue, peek.limit))


@router.post("/queues/{queue}/re-drive", **operation(Role.ADMIN, Redriven, takes=Again))
async def redrive_parked_messages(request: Request, queue: str) -> Response:
    """Send messages of a parked queue round again, to the queue they came from and to no other."""
    again = await read_body(request, Again)
    return answer(await _parked(request).redrive(queue, again.limit, actor=actor_of(request)))
