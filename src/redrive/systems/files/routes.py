"""The contract's routes for dead-letter queues, for people with the role admin."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Router, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.admin.letters import Limit
from redrive.service import Service
from redrive.systems.files.dead_letters import DeadLetterQueues, Depth, Plan, Shown
from redrive.systems.files.settings import FilesSettings
from redrive.transports.rabbitmq.redrive import Redriven


class Again(Struct, frozen=True, forbid_unknown_fields=True):
    """How many are sent back."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 10


def dead_letter_queues(request: Request[Any, Any, Any], service: NamedDependency[Service]) -> DeadLetterQueues:
    """One connection for all requests, made by the first."""
    state = request.app.state
    if "dead_letter_files" not in state:
        state.dead_letter_files = DeadLetterQueues(service, service.app.settings.of(FilesSettings))
        state.background.closing.append(state.dead_letter_files.aclose)
    found: DeadLetterQueues = state.dead_letter_files
    return found


@get("/queues", role=Role.ADMIN, whole=True)
async def list_dead_letter_queues(dead_letters: NamedDependency[DeadLetterQueues]) -> list[Depth]:
    """Every dead-letter queue, and how many messages it holds."""
    return list(await dead_letters.queues())


@get("/queues/{queue:str}/messages", role=Role.ADMIN, whole=True)
async def peek_dead_messages(
    dead_letters: NamedDependency[DeadLetterQueues], queue: FromPath[str], limit: Limit = 20
) -> list[Shown]:
    """The first messages of a dead-letter queue; they stay where and as they are."""
    return list(await dead_letters.messages(queue, limit))


@get("/queues/{queue:str}/re-drive", role=Role.ADMIN, whole=True)
async def plan_redrive(
    dead_letters: NamedDependency[DeadLetterQueues],
    queue: FromPath[str],
    limit: Annotated[int, QueryParameter(ge=1, le=1_000_000)] = 10,
) -> Plan:
    """What a re-drive would do now, and what has to be known of it before."""
    return await dead_letters.plan(queue, limit)


@post("/queues/{queue:str}/re-drive", role=Role.ADMIN, whole=True, status_code=200)
async def redrive_dead_messages(
    dead_letters: NamedDependency[DeadLetterQueues],
    actor: NamedDependency[Actor],
    queue: FromPath[str],
    data: JSONBody[Again],
) -> Redriven:
    """Send messages of a dead-letter queue back, to the queue they came from and to no other.

    A re-drive that is killed leaves at most 500 messages in both queues. Workers of `redrive files` that share one
    store drop the repeats; every other consumer handles these twice, unless it looks at `x-redriven-id` itself.
    """
    return await dead_letters.redrive(queue, data.limit, actor=actor)


router = Router(
    "/admin/dlq",
    route_handlers=[list_dead_letter_queues, peek_dead_messages, plan_redrive, redrive_dead_messages],
    dependencies={"dead_letters": Provide(dead_letter_queues, sync_to_thread=False)},
    tags=["files"],
)
