"""The metrics of the contract, under its names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.errors import MissingExtra, Unavailable
from redrive.model import Letter, Message
from redrive.systems.tickets.ticket import REASONS, TaskTypes
from redrive.telemetry.metrics import Metrics

try:
    from prometheus_client import Counter, Histogram
except ImportError as error:
    raise MissingExtra("metrics", "server") from error

if TYPE_CHECKING:
    from redrive.systems.tickets.worker import TicketWorker


class TicketMetrics:
    """Counts in the registry of the worker's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._types = TaskTypes()
        self.messages = Counter(
            "worker_agent_dlq_messages", "Tickets sent to the DLQ", ["reason", "task_type"], registry=registry
        )
        self.retries = Histogram(
            "worker_agent_ticket_retry_count",
            "Failures of a ticket when it is done (0: none) or dead",
            buckets=(0, 1, 2, 3, 5, 10, 20),
            registry=registry,
        )
        self.errors = Counter(
            "worker_agent_dlq_publish_errors",
            "Times that the DLQ did not take a ticket",
            ["error_type"],
            registry=registry,
        )

    def done(self, message: Message) -> None:
        """Count a ticket that its handler has done."""
        self.retries.observe(message.attempt - 1)

    def published(self, letter: Letter) -> None:
        """Count a ticket that the DLQ topic has taken."""
        self.messages.labels(REASONS[letter.reason], self._types.label(letter.message.body)).inc()
        self.retries.observe(letter.last.attempt)

    def refused(self, error: Unavailable) -> None:
        """Count an error of the DLQ topic."""
        cause = error.__cause__ or error
        self.errors.labels("TimeoutError" if "time" in str(error).lower() else type(cause).__name__).inc()


def measured(worker: TicketWorker) -> Metrics:
    """The metrics of a worker: Redrive's and the contract's."""
    metrics = Metrics(worker.app.events)
    own = TicketMetrics(metrics)
    worker.done.append(own.done)
    worker.transport.published.append(own.published)
    worker.transport.refused.append(own.refused)
    return metrics
