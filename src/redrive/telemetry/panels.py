"""What the dashboard shows of Redrive itself: rows of panels, each with its queries for Prometheus.

Letters, queues and replays are read from the store by every process that is scraped: hence max. Messages are counted by
the process that handled them: hence sum. `$source` is what is chosen above the dashboard, `$__rate_interval` Grafana's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """A query, and how what it finds is called; `{{source}}` is a label of it."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One graph, or one number."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"  # as Grafana calls it: s, percentunit, ops, dateTimeFromNow …
    about: str = ""
    kind: str = "timeseries"  # or `stat`: a number
    width: int = 8  # of 24


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def graph(title: str, *queries: tuple[str, str], unit: str = "short", about: str = "", width: int = 8) -> Panel:
    """Lines over time; each query is (expression, legend)."""
    return Panel(title, tuple(Query(*query) for query in queries), unit, about, width=width)


def number(title: str, expr: str, *, unit: str = "short", about: str = "", width: int = 4) -> Panel:
    """One number, as it is now."""
    return Panel(title, (Query(expr),), unit, about, "stat", width)


_OPEN = 'redrive_letters{state=~"pending|exhausted|retrying|replaying"}'
_RATE = '(rate(redrive_messages_total{{source=~"$source",outcome="{}"}}[$__rate_interval]))'
_SHARE = 'sum by (source) (rate(redrive_messages_total{{source=~"$source",outcome=~"{}"}}[$__rate_interval]))'
_SECONDS = 'sum by (source, le) (rate(redrive_attempt_seconds_bucket{{source=~"$source"}}[$__rate_interval]))'
_OURS = 'source=~"$source"'

ROWS = (
    Row(
        "Overview",
        (
            number("Open letters", f"sum(max by (source, state) ({_OPEN})) or vector(0)"),
            number(
                "Exhausted",
                'sum(max by (source, state) (redrive_letters{state="exhausted"})) or vector(0)',
                about="wait for a person",
            ),
            number("Oldest letter", "1000 * min(redrive_oldest_letter_timestamp_seconds)", unit="dateTimeFromNow"),
            number("Messages waiting", 'sum(max by (source, kind) (redrive_queue{kind="ready"})) or vector(0)'),
            number(
                "Workers", "count(max by (instance) (redrive_worker) == 1) or vector(0)", about="processes that receive"
            ),
            number("Backends away", "count(redrive_backend_up == 0) or vector(0)"),
            graph(
                "Messages a second",
                ("sum by (outcome) (rate(redrive_messages_total[$__rate_interval]))", "{{outcome}}"),
                unit="ops",
                width=12,
            ),
            graph(
                "Letters by state", ("sum by (state) (max by (source, state) (redrive_letters))", "{{state}}"), width=12
            ),
        ),
    ),
    Row(
        "Sources",
        (
            graph("Done", (f"sum by (source) {_RATE.format('done')}", "{{source}}"), unit="ops"),
            graph("In the queue", (f"max by (source, kind) (redrive_queue{{{_OURS}}})", "{{source}} {{kind}}")),
            graph(
                "Time of an attempt, 50 % and 99 %",
                (f"histogram_quantile(0.5, {_SECONDS.format()})", "{{source}} 50 %"),
                (f"histogram_quantile(0.99, {_SECONDS.format()})", "{{source}} 99 %"),
                unit="s",
            ),
        ),
    ),
    Row(
        "Retries",
        (
            graph("Retried", (f"sum by (source) {_RATE.format('retried')}", "{{source}}"), unit="ops"),
            graph(
                "Share of attempts that are retried",
                (f"{_SHARE.format('retried')} / {_SHARE.format('done|retried|buried')}", "{{source}}"),
                unit="percentunit",
            ),
            graph(
                "Letters sent back by automatic retries",
                (f"sum by (source) (rate(redrive_letters_retried_total{{{_OURS}}}[$__rate_interval]))", "{{source}}"),
                unit="ops",
            ),
            graph(
                "Given back untried",
                (f"sum by (source) {_RATE.format('released')}", "{{source}}"),
                unit="ops",
                width=12,
            ),
            graph("Circuit breakers that are open", ("max by (target) (redrive_breaker_open)", "{{target}}"), width=12),
        ),
    ),
    Row(
        "Letters",
        (
            graph(
                "Open, by source",
                (
                    "sum by (source) (max by (source, state) (" + _OPEN.replace("{", '{source=~"$source",') + "))",
                    "{{source}}",
                ),
            ),
            graph(
                "Buried, by category",
                (
                    f"sum by (category) (rate(redrive_letters_buried_total{{{_OURS}}}[$__rate_interval]))",
                    "{{category}}",
                ),
                unit="ops",
            ),
            graph(
                "Buried, by reason",
                (f"sum by (reason) (rate(redrive_letters_buried_total{{{_OURS}}}[$__rate_interval]))", "{{reason}}"),
                unit="ops",
            ),
            graph(
                "Resolved",
                (f"sum by (source) (rate(redrive_letters_resolved_total{{{_OURS}}}[$__rate_interval]))", "{{source}}"),
                unit="ops",
            ),
            graph(
                "Age of the oldest letter",
                ("time() - min by (source) (redrive_oldest_letter_timestamp_seconds)", "{{source}}"),
                unit="s",
            ),
            graph(
                "Refused by the store",
                (
                    f"sum by (source) (increase(redrive_letters_refused_total{{{_OURS}}}[$__rate_interval]))",
                    "{{source}}",
                ),
            ),
        ),
    ),
    Row(
        "Replays",
        (
            graph("Not at their end", ("max by (standing) (redrive_replays_under_way)", "{{standing}}"), width=12),
            graph(
                "Came to a state",
                ("sum by (state) (increase(redrive_replays_total[$__rate_interval]))", "{{state}}"),
                width=12,
            ),
        ),
    ),
    Row(
        "Workers",
        (
            graph("Workers of a source", ("sum by (source) (redrive_worker)", "{{source}}")),
            graph(
                "Leases lost",
                ("sum(increase(redrive_lease_lost_total[$__rate_interval]))", "handlers that may have run twice"),
            ),
            graph(
                "Since upkeep ran last",
                ("time() - max by (task) (redrive_upkeep_last_run_timestamp_seconds)", "{{task}}"),
                unit="s",
            ),
            graph(
                "How full queues with a bound are",
                ("max by (queue) (redrive_queue_utilisation)", "{{queue}}"),
                unit="percentunit",
            ),
            graph(
                "Alerts of Redrive's own",
                ("sum by (notifier) (increase(redrive_alerts_sent_total[$__rate_interval]))", "{{notifier}} told"),
                (
                    "sum by (notifier) (increase(redrive_alerts_failed_total[$__rate_interval]))",
                    "{{notifier}} not reached",
                ),
                (
                    "sum by (notifier) (increase(redrive_alerts_dropped_total[$__rate_interval]))",
                    "{{notifier}} dropped",
                ),
            ),
            graph("Incidents", ("sum by (state) (increase(redrive_incidents_total[$__rate_interval]))", "{{state}}")),
        ),
    ),
    Row(
        "Backends",
        (
            graph(
                "Answer",
                ("min by (backend) (redrive_backend_up)", "{{backend}}"),
                about="1: they answered the last scrape",
            ),
            graph(
                "Did not answer",
                ("sum by (backend) (increase(redrive_backend_down_total[$__rate_interval]))", "{{backend}}"),
            ),
            graph("Versions", ("count by (version) (redrive_build_info)", "{{version}}"), about="processes of each"),
        ),
    ),
)
