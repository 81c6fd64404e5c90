"""The queue in numbers, in the document's shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from redrive.model import OPEN
from redrive.stores.base import Tally
from redrive.systems.workflow.lifetime import Lifetime
from redrive.systems.workflow.policies import DeadLetterStatus
from redrive.systems.workflow.task import SOURCE


class Health(Struct, frozen=True):
    """What the document's monitoring looks at."""

    size: int
    max_size: int
    exhausted: int
    lifetime: Lifetime

    @property
    def utilization(self) -> float:
        return share(self.size, self.max_size)

    @property
    def retries(self) -> int:
        """How many were made, each that failed included."""
        return self.lifetime.retry_success + self.lifetime.retry_failed

    @property
    def success_rate(self) -> float:
        """How many of them succeeded, in per cent."""
        return 100 * self.lifetime.retry_success / self.retries


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
