"""The metrics of the contract, under its names."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.errors import MissingExtra, Unavailable
from redrive.model import State
from redrive.systems.pipeline.engine import Engine
from redrive.telemetry.events import Event, MessageBuried
from redrive.telemetry.metrics import Metrics

try:
    from prometheus_client import Counter
    from prometheus_client.core import GaugeMetricFamily, Metric
except ImportError as error:
    raise MissingExtra("metrics", "server") from error

_WAITING = (State.PENDING, State.EXHAUSTED)


class Depths:
    """Dead streams that wait at each node; none while the store cannot say."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._found: dict[str, int] | None = None

    async def look(self) -> None:
        """Count them anew: called before each scrape."""
        try:
            self._found = await depths(self._engine)
        except Unavailable:
            self._found = None

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("pipestream_dlq_depth", "Dead streams that wait", labels=["node_id"])
        for node_id, count in (self._found or {}).items():
            family.add_metric([node_id], count)
        yield family


async def depths(engine: Engine) -> dict[str, int]:
    graph = engine.graph
    found = dict.fromkeys(graph.nodes, 0)
    for tally in await engine.app.store.letters.tallies():
        node = graph.node_of(tally.source)
        if node is not None and tally.state in _WAITING:
            found[node.id] += tally.count
    return found


def measured(engine: Engine) -> Metrics:
    """The metrics of an engine: Redrive's and the contract's."""
    metrics = Metrics(engine.app.events)
    dead = Counter("pipestream_dlq_messages", "Streams sent to the DLQ", ["node_id"], registry=metrics.registry)
    for node_id in engine.graph.nodes:
        dead.labels(node_id)  # 0 from the start: a rate needs something to grow from
    waiting = Depths(engine)
    metrics.registry.register(waiting)
    metrics.probes.append(waiting.look)

    def count(event: Event) -> None:
        node = engine.graph.node_of(event.source) if isinstance(event, MessageBuried) else None
        if node is not None and node.has_dlq:
            dead.labels(node.id).inc()

    engine.app.events.subscribe(count)
    return metrics
