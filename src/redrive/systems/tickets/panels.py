"""What is shown of the ticket workers: a row of `redrive dashboard`."""

from __future__ import annotations

from redrive.telemetry.panels import Row, graph

ROW = Row(
    "Tickets",
    (
        graph(
            "Sent to the DLQ, by reason",
            ("sum by (reason) (rate(worker_agent_dlq_messages_total[$__rate_interval]))", "{{reason}}"),
            unit="ops",
        ),
        graph(
            "Failures of a ticket when it is done or dead, 99 %",
            (
                "histogram_quantile(0.99, "
                "sum by (le) (rate(worker_agent_ticket_retry_count_bucket[$__rate_interval])))",
                "failures",
            ),
        ),
        graph(
            "Times that the DLQ did not take a ticket",
            (
                "sum by (error_type) (increase(worker_agent_dlq_publish_errors_total[$__rate_interval]))",
                "{{error_type}}",
            ),
        ),
    ),
)
