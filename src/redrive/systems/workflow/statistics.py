"""The queue in numbers, in the document's shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from redrive.model import OPEN
from redrive.stores.base import Tally
from redrive.systems.workflow.policies import DeadLetterStatus
from redrive.systems.workflow.task import SOURCE


class Lifetime(Struct):
    """What happened since this queue was opened, in this process."""

    enqueued_total: int = 0
    retry_success: int = 0
    retry_failed: int = 0
    exhausted: int = 0
    manually_retried: int = 0
    archived: int = 0

    def shown(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def open_count(tallies: Iterable[Tally]) -> int:
    """How many tasks are open: they count towards max_size."""
    return sum(tally.count for tally in tallies if tally.source == SOURCE and tally.state in OPEN)


def breakdown(tallies: Iterable[Tally]) -> dict[str, int]:
    """How many in each status, those with none included."""
    counts = Counter[str]()
    for tally in tallies:
        if tally.source == SOURCE:
            counts[DeadLetterStatus.of(tally.state)] += tally.count
    return {status.value: counts[status] for status in DeadLetterStatus}


def categories(tallies: Iterable[Tally]) -> dict[str, int]:
    """How many open tasks of each category that has any."""
    counts = Counter[str]()
    for tally in tallies:
        if tally.source == SOURCE and tally.state in OPEN:
            counts[tally.category.value] += tally.count
    return dict(counts.most_common())


def share(part: int, whole: int) -> float:
    """In per cent, to two digits."""
    return round(100 * part / whole, 2)


def shown(
    tallies: list[Tally],
    policies: Counter[str],
    lifetime: Lifetime,
    *,
    max_size: int,
    is_running: bool,
    interval: float,
    persistence: dict[str, Any],
) -> dict[str, Any]:
    size = open_count(tallies)
    return {
        "queue_size": size,
        "max_size": max_size,
        "utilization_percent": share(size, max_size),
        "status_breakdown": breakdown(tallies),
        "error_categories": categories(tallies),
        "retry_policies": dict(policies.most_common()),
        "lifetime_stats": lifetime.shown(),
        "is_processor_running": is_running,
        "retry_interval_seconds": interval,
        "persistence": persistence,
    }
