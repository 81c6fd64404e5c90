"""What is shown of workflows: a row of `redrive dashboard`."""

from __future__ import annotations

from redrive.telemetry.panels import Row, graph

ROW = Row(
    "Workflows",
    (
        graph(
            "How full the dead-letter queue is",
            ('max(redrive_queue_utilisation{queue="workflow"})', "workflow"),
            unit="percentunit",
        ),
        graph(
            "Enqueued, by category",
            ("sum by (category) (rate(redrive_workflow_enqueued_total[$__rate_interval]))", "{{category}}"),
            unit="ops",
        ),
        graph(
            "Retries, by outcome",
            ("sum by (outcome) (rate(redrive_workflow_retries_total[$__rate_interval]))", "{{outcome}}"),
            unit="ops",
        ),
        graph("Exhausted", ("sum(increase(redrive_workflow_exhausted_total[$__rate_interval]))", "tasks")),
        graph("The store answers", ("min(redrive_workflow_store_up)", "1: it does")),
        graph(
            "Tasks, by state",
            ('max by (state) (redrive_letters{source="workflow"})', "{{state}}"),
        ),
    ),
)
