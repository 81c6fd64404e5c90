"""How the tenants of a fair source fare, as people and programs are shown it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from redrive.answers import Unanswered

_LONGEST_NAME = 100


class Turn(Struct, frozen=True):
    """One tenant now; an empty name is of messages without a tenant."""

    tenant: str
    waiting: int
    rounds_without_processing: int
    current_priority: int  # 1 is the most urgent
    total_processed: int
    consecutive_batch_count: int
    last_processed_at: datetime | None


class Turns(Struct, frozen=True):
    """The tenants of one source, the last served first."""

    source: str
    tenants: list[Turn]


class Fairness(Struct, frozen=True):
    """The turns of every source that is shared fairly, and which transports could not be asked."""

    sources: list[Turns]
    unanswered: list[Unanswered]


def turns(source: str, tenants: Iterable[Any]) -> Turns:
    """The turns of a source from what its transport knows; names are cut to what fits on a line."""
    return Turns(source, [_turn(tenant) for tenant in tenants])


def shown_name(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _turn(tenant: Any) -> Turn:
    return Turn(
        tenant=shown_name(tenant.name),
        waiting=tenant.waiting,
        rounds_without_processing=tenant.rounds_without_processing,
        current_priority=tenant.current_priority,
        total_processed=tenant.total_processed,
        consecutive_batch_count=tenant.consecutive_batch_count,
        last_processed_at=tenant.last_processed_at,
    )
