"""Letters and queues, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from redrive.model import OPEN, Category, State
from redrive.stores.base import Tally
from redrive.transports.base import Depth, Paused


class SourceStats(Struct, frozen=True):
    """One source: its letters and its queue."""

    source: str
    states: dict[State, int]
    queued: Depth | None
    paused: Paused | None = None


class Stats(Struct, frozen=True):
    """Everything, counted."""

    at: datetime
    total: int
    open: int
    states: dict[State, int]
    categories: dict[Category, int]  # of the open ones
    sources: list[SourceStats]


def stats_of(
    tallies: Iterable[Tally], depths: Mapping[str, Depth], at: datetime, pauses: Mapping[str, Paused] | None = None
) -> Stats:
    """Sum up the tallies by source, beside the depths of its queue, and who has paused it."""
    paused = pauses or {}
    states: Counter[State] = Counter()
    categories: Counter[Category] = Counter()
    sources: dict[str, Counter[State]] = {name: Counter() for name in (*depths, *paused)}
    for tally in tallies:
        states[tally.state] += tally.count
        sources.setdefault(tally.source, Counter())[tally.state] += tally.count
        if tally.state in OPEN:
            categories[tally.category] += tally.count
    return Stats(
        at=at,
        total=sum(states.values()),
        open=sum(states[state] for state in OPEN),
        states=dict(states),
        categories=dict(categories),
        sources=[
            SourceStats(name, dict(sources[name]), depths.get(name), paused.get(name)) for name in sorted(sources)
        ],
    )
