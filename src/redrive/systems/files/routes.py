"""The contract's routes for parked messages, for people with the role admin."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Router, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from redrive.access.tokens import Role
from redrive.admin.letters import Limit
from redrive.service import Service
from redrive.systems.files.parked import DeadLetterQueues, Depth, Shown
from redrive.systems.files.settings import FilesSettings
from redrive.transports.rabbitmq.redrive import Redriven


class Again(Struct, frozen=True, forbid_unknown_fields=True):
    """How many are sent round."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 10


def parked_queues(request: Request[Any, Any, Any], service: NamedDependency[Service]) -> DeadLetterQueues:
    """One connection for all requests, made by the first."""
    state = request.app.state
    if "parked_files" not in state:
        state.parked_files = DeadLetterQueues(service, service.app.settings.of(FilesSettings))
        state.background.closing.append(state.parked_files.aclose)
    found: DeadLetterQueues = state.parked_files
    return found


@get("/queues", role=Role.ADMIN)
async def list_parked_queues(parked: NamedDependency[DeadLetterQueues]) -> list[Depth]:
    """Every parked queue, and how many messages lie in it."""
    return list(await parked.queues())


@get("/queues/{queue:str}/messages", role=Role.ADMIN)
async def peek_parked_messages(
    parked: NamedDependency[DeadLetterQueues], queue: FromPath[str], limit: Limit = 20
) -> list[Shown]:
    """The first messages of a parked queue; they stay where and as they are."""
    return list(await parked.messages(queue, limit))


@post("/queues/{queue:str}/re-drive", role=Role.ADMIN, status_code=200)
async def redrive_parked_messages(
    parked: NamedDependency[DeadLetterQueues], actor: NamedDependency[str], queue: FromPath[str], data: JSONBody[Again]
) -> Redriven:
    """Send messages of a parked queue round again, to the queue they came from and to no other."""
    return await parked.redrive(queue, data.limit, actor=actor)


router = Router(
    "/admin/dlq",
    route_handlers=[list_parked_queues, peek_parked_messages, redrive_parked_messages],
    dependencies={"parked": Provide(parked_queues, sync_to_thread=False)},
    tags=["files"],
)
