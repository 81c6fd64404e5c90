"""The contract's route for the DLQ of a node."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from msgspec import Meta, Struct

from redrive.access.tokens import Role
from redrive.admin.access import actor_of
from redrive.admin.background import Background
from redrive.admin.letters import service_of
from redrive.admin.openapi import operation
from redrive.admin.wire import answer, read_body, zoned_all
from redrive.flow.replay import Replay
from redrive.systems.pipeline.dlq import dead_streams
from redrive.systems.pipeline.graph import Graph
from redrive.systems.pipeline.settings import PipelineSettings

router = APIRouter(prefix="/admin/dlq", tags=["pipeline"])


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead streams of the node; all of them where nothing is said."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    since: datetime | None = None
    error_type: str | None = None
    dry_run: bool = False


class Replayed(Struct, frozen=True):
    """What is sent, or would be."""

    node_id: str
    total: int
    replay: Replay | None  # None: it was a dry run


def _graph(request: Request) -> Graph:
    """Read once."""
    state: Any = request.app.state
    if not hasattr(state, "pipeline_graph"):
        state.pipeline_graph = Graph.load(service_of(request).app.settings.of(PipelineSettings).graph or "")
    graph: Graph = state.pipeline_graph
    return graph


@router.post("/{node_id}/replay", **operation(Role.OPERATOR, Replayed, takes=ReplayRequest, status=202))
async def replay_dead_streams(request: Request, node_id: str) -> Response:
    """Send dead streams of a node back to its input topic, in the background; exactly those that are there now."""
    service, graph = service_of(request), _graph(request)
    node = graph.node(node_id)
    order = await read_body(request, ReplayRequest)
    zoned_all(order)
    query = await dead_streams(service, graph, node, limit=order.limit, since=order.since, kind=order.error_type)
    if order.dry_run:
        return answer(Replayed(node.id, await service.count(query), None), 202)
    replay = await service.replay(query, actor=actor_of(request), reason=f"pipeline replay of {node.label}")
    background: Background = request.app.state.background
    background.run(replay.id)
    return answer(Replayed(node.id, replay.total, replay), 202)
