"""How the tenants of a fair source fare."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from redrive.clock import moment


class TenantMetrics(Struct, frozen=True):
    """One tenant now. `name` is empty for messages without a tenant."""

    name: str
    last_processed_at: datetime | None
    rounds_without_processing: int
    current_priority: int
    total_processed: int
    consecutive_batch_count: int
    waiting: int


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
