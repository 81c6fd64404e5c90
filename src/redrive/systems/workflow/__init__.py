"""Failed workflows, kept and retried in the process that runs them, in memory, SQLite or OpenSearch.

    policies.py      when a task is retried
    task.py          a failed task is a view of a letter
    values.py        what JSON has no type for
    queue.py         DeadLetterQueue: enqueue, look, retry, put away
    enqueue.py       from a failed execution to its letter
    calls.py         one call of the callback, and what its answer says
    processor.py     what is due, in parallel, past the breaker; attempts and outcomes are the core's (flow/)
    capacity.py      how many open tasks there may be
    spool.py         what is enqueued while OpenSearch is away
    shape.py         the task as a document of OpenSearch
    transport.py     replays from the console and the CLI (transports/letters)
    integration.py   which failed executions are enqueued
    alerting.py      alerts when it goes wrong
    facts.py         what happens to tasks, as events and lines
    observe.py       the log, and an app's own observability object
    metrics.py       for Prometheus
    lifetime.py      statistics that survive a restart
    dependencies.py  tasks that wait for others
    app.py           WorkflowApp: runs workflows
    settings.py      the document's settings, from its file and its environment

Every name that a program needs is here; nothing of a driver is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.systems.base import exports

if TYPE_CHECKING:
    from redrive.systems.workflow.access import AccessManager, RoleManager
    from redrive.systems.workflow.alerting import alerts_of
    from redrive.systems.workflow.app import Adapter, WorkflowApp
    from redrive.systems.workflow.errors import AccessDenied, BadTask, DependencyCycle, DuplicateTask, QueueFull
    from redrive.systems.workflow.integration import DLQIntegration, DLQIntegrationStrategy, create_dlq_integration
    from redrive.systems.workflow.metrics import metrics_of
    from redrive.systems.workflow.policies import POLICY_OF, DeadLetterStatus, ErrorCategory, RetryPolicy
    from redrive.systems.workflow.queue import DeadLetterQueue
    from redrive.systems.workflow.settings import WorkflowSettings
    from redrive.systems.workflow.shape import WorkflowShape
    from redrive.systems.workflow.task import FailedTask
    from redrive.systems.workflow.templates import Template

__all__ = [
    "POLICY_OF",
    "AccessDenied",
    "AccessManager",
    "Adapter",
    "BadTask",
    "DLQIntegration",
    "DLQIntegrationStrategy",
    "DeadLetterQueue",
    "DeadLetterStatus",
    "DependencyCycle",
    "DuplicateTask",
    "ErrorCategory",
    "FailedTask",
    "QueueFull",
    "RetryPolicy",
    "RoleManager",
    "Template",
    "WorkflowApp",
    "WorkflowSettings",
    "WorkflowShape",
    "alerts_of",
    "create_dlq_integration",
    "metrics_of",
]

__getattr__ = exports(
    __name__,
    {
        "access": (
            "AccessManager",
            "RoleManager",
        ),
        "alerting": ("alerts_of",),
        "metrics": ("metrics_of",),
        "app": (
            "Adapter",
            "WorkflowApp",
        ),
        "settings": ("WorkflowSettings",),
        "errors": (
            "AccessDenied",
            "BadTask",
            "DependencyCycle",
            "DuplicateTask",
            "QueueFull",
        ),
        "integration": (
            "DLQIntegration",
            "DLQIntegrationStrategy",
            "create_dlq_integration",
        ),
        "policies": (
            "POLICY_OF",
            "DeadLetterStatus",
            "ErrorCategory",
            "RetryPolicy",
        ),
        "queue": ("DeadLetterQueue",),
        "shape": ("WorkflowShape",),
        "task": ("FailedTask",),
        "templates": ("Template",),
    },
)
