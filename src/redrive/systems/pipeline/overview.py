"""The graph as it stands: how full each node is, and which of them fail."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

from redrive.answers import Unanswered
from redrive.forensics.series import MINUTE, By, Counted, SeriesQuery, floored
from redrive.model import State
from redrive.service import Service, SourceView
from redrive.systems.pipeline.graph import Graph, Node
from redrive.transports.base import Depth

LATELY = timedelta(minutes=15)
_DEAD = (State.PENDING, State.EXHAUSTED)


class NodeState(StrEnum):
    """How a node is."""

    FAILING = "failing"  # streams died here lately
    PAUSED = "paused"
    DEAD = "dead"  # streams that died here wait; none died lately
    RUNNING = "running"
    IDLE = "idle"  # no engine works on it


class NodeView(Struct, frozen=True, kw_only=True):
    """A node, what waits at it, and what died at it."""

    id: str
    name: str
    module: str
    source: str  # the topic that it reads
    next: list[str]
    state: NodeState
    queued: Depth | None  # None: its transport does not say
    workers: int
    in_hand: int
    rate: float  # streams that finish a second
    dead: int  # that wait for somebody
    died_lately: int


class GraphView(Struct, frozen=True, kw_only=True):
    """Every node that whoever asks may know of, in the order of the graph."""

    cluster: str
    lately: float  # seconds
    nodes: list[NodeView]
    unanswered: list[Unanswered]


async def graph_view(service: Service, graph: Graph) -> GraphView:
    """The graph as its backends tell."""
    nodes = [node for node in graph.nodes.values() if service.reaches_whole(graph.topic(node))]
    known = await service.sources_in_detail()
    by_source = {view.source: view for view in known.details}
    died = await _died_lately(service, tuple(graph.topic(node) for node in nodes))
    seen = {node.id for node in nodes}
    views = [_view(graph, node, seen, by_source.get(graph.topic(node)), died) for node in nodes]
    return GraphView(cluster=graph.cluster, lately=LATELY.total_seconds(), nodes=views, unanswered=known.unanswered)


async def _died_lately(service: Service, topics: tuple[str, ...]) -> dict[str, int]:
    until = service.clock.now()
    asked = SeriesQuery(
        step=MINUTE,
        since=floored(int((until - LATELY).timestamp()), MINUTE),
        until=int(until.timestamp()) + 1,
        by=By.SOURCE,
        sources=topics,
        outcomes=(Counted.BURIED.value,),
    )
    found = dict.fromkeys(topics, 0)
    for point in await service.app.store.series.read(asked) if topics else ():
        found[point.name] += point.number
    return found


def _view(graph: Graph, node: Node, seen: set[str], source: SourceView | None, died: dict[str, int]) -> NodeView:
    topic = graph.topic(node)
    dead = 0 if source is None else sum(source.states.get(state, 0) for state in _DEAD)
    return NodeView(
        id=node.id,
        name=node.label,
        module=node.module,
        source=topic,
        next=[id for id in node.next if id in seen],
        state=_state(source, dead, died[topic]),
        queued=None if source is None else source.queued,
        workers=0 if source is None else source.workers,
        in_hand=0 if source is None else source.in_hand,
        rate=0.0 if source is None else source.rate,
        dead=dead,
        died_lately=died[topic],
    )


def _state(source: SourceView | None, dead: int, died: int) -> NodeState:
    if died:
        return NodeState.FAILING
    if source is not None and source.paused is not None:
        return NodeState.PAUSED
    if dead:
        return NodeState.DEAD
    return NodeState.RUNNING if source is not None and source.workers else NodeState.IDLE
