"""The contract's route for the DLQ of a node, and the graph as it stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from litestar import Request, Router, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.admin.background import Background
from redrive.errors import NotInScope
from redrive.flow.replay import Replay
from redrive.service import Service
from redrive.systems.pipeline.dlq import Chosen, dead_streams
from redrive.systems.pipeline.graph import Graph
from redrive.systems.pipeline.overview import GraphView, graph_view
from redrive.systems.pipeline.settings import PipelineSettings


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead streams of the node; all of them where nothing is said."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    since: datetime | None = None
    error_type: str | None = None
    dry_run: bool = False


class From(StrEnum):
    """Where dead streams are read."""

    LETTERS = "letters"  # of the store
    TOPIC = "topic"  # the DLQ topic itself


class Replayed(Struct, frozen=True):
    """What is sent, or would be."""

    node_id: str
    total: int
    replay: Replay | None  # None: it was a dry run, or straight from the topic


def graph_of(request: Request[Any, Any, Any], service: NamedDependency[Service]) -> Graph:
    """Read once."""
    state = request.app.state
    if "pipeline_graph" not in state:
        state.pipeline_graph = Graph.load(service.app.settings.of(PipelineSettings).graph or "")
    graph: Graph = state.pipeline_graph
    return graph


@post("/admin/dlq/{node_id:str}/replay", role=Role.OPERATOR, status_code=202, costly=True)
async def replay_dead_streams(
    service: NamedDependency[Service],
    graph: NamedDependency[Graph],
    background: NamedDependency[Background],
    actor: NamedDependency[Actor],
    node_id: FromPath[str],
    data: JSONBody[ReplayRequest | None] = None,
    origin: Annotated[From, QueryParameter(name="from")] = From.LETTERS,
) -> Replayed:
    """Send dead streams of a node back to its input topic: without a body all that are there now. Those of the store go
    in the background; with `from=topic` what the DLQ topic itself has is sent before the answer comes."""
    node, data = graph.node(node_id), data or ReplayRequest()
    chosen = Chosen(limit=data.limit, since=data.since, kind=data.error_type)
    if origin is From.TOPIC:
        if not actor.scope.is_everything:
            raise NotInScope("a topic holds streams of everybody: replay the letters of the store instead")
        from redrive.systems.pipeline.topic_replay import replay_topic

        total = await replay_topic(service, graph, node, chosen, actor=actor, dry_run=data.dry_run)
        return Replayed(node.id, total, None)
    query = await dead_streams(service, graph, node, chosen)
    if data.dry_run:
        return Replayed(node.id, await service.count(query), None)
    replay = await service.replay(query, actor=actor, reason=f"pipeline replay of {node.label}")
    background.run(replay.id)
    return Replayed(node.id, replay.total, replay)


@get("/api/pipeline/graph", role=Role.VIEWER)
async def show_graph(service: NamedDependency[Service], graph: NamedDependency[Graph]) -> GraphView:
    """The graph: each node, where its streams go, what waits at it, what died at it, and whether it fails."""
    return await graph_view(service, graph)


router = Router(
    "/",
    route_handlers=[replay_dead_streams, show_graph],
    dependencies={"graph": Provide(graph_of, sync_to_thread=False)},
    tags=["pipeline"],
)
