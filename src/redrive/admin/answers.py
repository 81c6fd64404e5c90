"""What a worker process answers its supervisor, which serves metrics and health of all at one address (together.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from redrive.access.tokens import Tokens
from redrive.admin.health import measured
from redrive.app import Redrive
from redrive.processes.child import Child
from redrive.processes.merge import Family, packed
from redrive.service import Service
from redrive.telemetry.metrics import Metric, Metrics

METRICS, READY, TOKEN = "metrics", "ready", "token"


def answer_for(child: Child, app: Redrive, metrics: Metrics | None = None) -> None:
    """Let the supervisor ask this process for what it would otherwise serve itself."""
    counted = metrics or Metrics(app.events)
    service = Service(app)
    tokens = Tokens(app.store.documents, app.clock)

    async def all_metrics(text: str) -> bytes:
        return packed(families_of(counted.collected(await measured(service, counted))))

    async def readiness(text: str) -> bytes:
        return msgspec.json.encode(await service.check_backends())

    async def token_of(text: str) -> bytes:
        return msgspec.json.encode(await tokens.check(text))

    child.answers |= {METRICS: all_metrics, READY: readiness, TOKEN: token_of}
    child.counted = lambda: packed(families_of(counted.collected(None)))


def families_of(found: Iterable[Metric]) -> Iterator[Family]:
    """Metrics as plain data, which can be sent and added up."""
    for metric in found:
        samples = [(sample.name, tuple(sample.labels.items()), float(sample.value)) for sample in metric.samples]
        yield Family(metric.name, metric.type, metric.documentation, samples)
