"""What is shown of the pipeline: a row of `redrive dashboard`."""

from __future__ import annotations

from redrive.telemetry.panels import Row, graph

ROW = Row(
    "Pipeline",
    (
        graph("Dead streams that wait", ("max by (node_id) (pipestream_dlq_depth)", "{{node_id}}")),
        graph(
            "Sent to the DLQ",
            ("sum by (node_id) (rate(pipestream_dlq_messages_total[$__rate_interval]))", "{{node_id}}"),
            unit="ops",
        ),
        graph(
            "Modules that are not called",
            ('max by (target) (redrive_breaker_open{target=~"module/.*"})', "{{target}}"),
            about="their breaker is open",
        ),
    ),
)
