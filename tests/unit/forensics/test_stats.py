"""Letters and queues, counted."""

from __future__ import annotations

from redrive.forensics.stats import SourceStats, stats_of
from redrive.model import Category, State
from redrive.stores.base import Tally
from redrive.testing.clock import START
from redrive.transports.base import Depth

TALLIES = [
    Tally("orders", State.PENDING, Category.NETWORK, 3),
    Tally("orders", State.PENDING, Category.VALIDATION, 2),
    Tally("orders", State.RESOLVED, Category.NETWORK, 10),
    Tally("emails", State.EXHAUSTED, Category.NETWORK, 1),
]


def test_nothing_is_nothing() -> None:
    stats = stats_of([], {}, START)
    assert (stats.total, stats.open, stats.states, stats.categories, stats.sources) == (0, 0, {}, {}, [])


def test_sums_are_by_state_by_category_of_what_is_open_and_by_source() -> None:
    stats = stats_of(TALLIES, {}, START)
    assert (stats.at, stats.total, stats.open) == (START, 16, 6)
    assert stats.states == {State.PENDING: 5, State.RESOLVED: 10, State.EXHAUSTED: 1}
    assert stats.categories == {Category.NETWORK: 4, Category.VALIDATION: 2}
    assert stats.sources == [
        SourceStats("emails", {State.EXHAUSTED: 1}, None),
        SourceStats("orders", {State.PENDING: 5, State.RESOLVED: 10}, None),
    ]


def test_queues_stand_beside_their_letters_and_a_queue_without_letters_is_shown_too() -> None:
    depths = {"orders": Depth(1, 2, 3), "audit": Depth(4, 0, 0)}
    stats = stats_of(TALLIES, depths, START)
    assert [(one.source, one.queued) for one in stats.sources] == [
        ("audit", Depth(4, 0, 0)),
        ("emails", None),
        ("orders", Depth(1, 2, 3)),
    ]
    assert depths["orders"].total == 6
