"""Letters and queues, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from redrive.answers import Unanswered
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
    """Everything that could be counted, and what could not."""

    at: datetime
    total: int | None  # None: the store did not answer
    open: int | None
    states: dict[State, int]
    categories: dict[Category, int]  # of the open ones
    sources: list[SourceStats]
    unanswered: list[Unanswered] = []


def stats_of(
    tallies: Iterable[Tally] | None,
    depths: Mapping[str, Depth],
    at: datetime,
    *,
    pauses: Mapping[str, Paused] | None = None,
    unanswered: Sequence[Unanswered] = (),
) -> Stats:
    """Sum up the tallies by source, beside the depths of its queue, and who has paused it. No tallies: the store did
    not answer."""
    paused = pauses or {}
    states: Counter[State] = Counter()
    categories: Counter[Category] = Counter()
    sources: dict[str, Counter[State]] = {name: Counter() for name in (*depths, *paused)}
    for tally in tallies or ():
        states[tally.state] += tally.count
        sources.setdefault(tally.source, Counter())[tally.state] += tally.count
        if tally.state in OPEN:
            categories[tally.category] += tally.count
    return Stats(
        at=at,
        total=None if tallies is None else sum(states.values()),
        open=None if tallies is None else sum(states[state] for state in OPEN),
        states=dict(states),
        categories=dict(categories),
        sources=[
            SourceStats(name, dict(sources[name]), depths.get(name), paused.get(name)) for name in sorted(sources)
        ],
        unanswered=list(unanswered),
    )
