"""Metrics of a queue for Prometheus: those of the project, and how many tasks were enqueued, retried and exhausted."""

from __future__ import annotations

from redrive.errors import MissingExtra
from redrive.systems.workflow.facts import TaskEnqueued, TaskExhausted, TaskRetried
from redrive.systems.workflow.queue import DeadLetterQueue
from redrive.telemetry.events import BackendDown, BackendUp, Event
from redrive.telemetry.metrics import Metrics

try:
    from prometheus_client import Gauge
except ImportError as error:
    raise MissingExtra("metrics", "server") from error


class QueueMetrics(Metrics):
    """What happens in this process. `registry` is for your exporter, `render(None)` gives the text of a scrape."""

    def __init__(self, queue: DeadLetterQueue) -> None:
        super().__init__(queue.events)
        self._enqueued = self._counter("workflow_enqueued", "Failed tasks that were enqueued", "category", "policy")
        self._retries = self._counter("workflow_retries", "Retries that ended", "outcome")
        self._exhausted = self._counter("workflow_exhausted", "Tasks whose last retry failed")
        self._is_up = Gauge("redrive_workflow_store_up", "1: the store answers", registry=self.registry)
        self._is_up.set(1)
        unsubscribe, unsubscribe_ours = self.close, queue.events.subscribe(self._note)

        def close() -> None:
            unsubscribe()
            unsubscribe_ours()

        self.close = close

    def _note(self, event: Event) -> None:
        match event:
            case TaskEnqueued():
                self._enqueued.labels(event.error_category, event.retry_policy).inc()
            case TaskRetried():
                self._retries.labels("success" if event.success else "failed").inc()
            case TaskExhausted():
                self._exhausted.inc()
            case BackendDown() | BackendUp():
                self._is_up.set(isinstance(event, BackendUp))


def metrics_of(queue: DeadLetterQueue) -> QueueMetrics:
    """Count what happens in that queue from now on."""
    return QueueMetrics(queue)
