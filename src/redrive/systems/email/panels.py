"""What is shown of the e-mail gateway: a row of `redrive dashboard`."""

from __future__ import annotations

from redrive.telemetry.panels import Row, graph

ROW = Row(
    "E-mail",
    (
        graph("In the DLQ", ("max(dlq_size)", "e-mails")),
        graph("In the DLQ, by code", ("max by (error_code) (dlq_by_error_code)", "{{error_code}}")),
        graph("In the DLQ, by company", ("topk(10, max by (companyId) (dlq_by_company))", "{{companyId}}")),
        graph(
            "Attempts, by their number",
            ("sum by (attempt) (rate(retry_attempts_total[$__rate_interval]))", "{{attempt}}"),
            unit="ops",
        ),
        graph(
            "Share of attempts that succeeded",
            ("min by (attempt) (retry_success_rate)", "{{attempt}}"),
            unit="percentunit",
        ),
        graph(
            "Delay before the next attempt, 90 %",
            (
                "histogram_quantile(0.9, sum by (le) (rate(retry_backoff_delay_seconds_bucket[$__rate_interval])))",
                "delay",
            ),
            unit="s",
        ),
        graph(
            "Moved to the DLQ, and trimmed",
            ("sum(increase(dlq_entries_total[$__rate_interval]))", "moved"),
            ("sum(increase(dlq_trimmed_total[$__rate_interval]))", "trimmed"),
        ),
        graph(
            "Rounds that companies waited",
            ("topk(10, max by (companyId) (tenant_rounds_without_processing))", "{{companyId}}"),
        ),
        graph(
            "Memory of Redis",
            ("max(redis_memory_used_bytes)", "used"),
            ("max(redis_memory_max_bytes)", "maxmemory"),
            unit="bytes",
        ),
    ),
)
