"""How the tenants of a fair source fare, whichever transport shares it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class TenantMetrics(Struct, frozen=True):
    """One tenant now. `name` is empty for messages without a tenant."""

    name: str
    last_processed_at: datetime | None
    rounds_without_processing: int
    current_priority: int
    total_processed: int
    consecutive_batch_count: int
    waiting: int
