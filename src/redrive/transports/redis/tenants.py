"""How the tenants of a fair source fare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redrive.clock import moment
from redrive.limits import TenantMetrics

__all__ = ["TenantMetrics", "metrics"]


def metrics(rows: Iterable[Any]) -> list[TenantMetrics]:
    """The answer of `tenants.lua` as values."""
    return [
        TenantMetrics(
            name=name.decode("utf-8", "surrogatepass"),
            last_processed_at=moment(at * 1000) if at else None,
            rounds_without_processing=rounds,
            current_priority=priority,
            total_processed=total,
            consecutive_batch_count=in_a_row,
            waiting=waiting,
        )
        for name, total, at, rounds, priority, in_a_row, waiting in rows
    ]
