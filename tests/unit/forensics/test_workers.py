"""Whether a worker lives is told by its beats, and only where there is nothing else by the clocks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.forensics.workers import Roll

EVERY = timedelta(seconds=5)


@pytest.fixture
def roll() -> Roll:
    return Roll(EVERY)


def test_of_a_worker_that_was_seen_once_the_time_is_believed(roll: Roll) -> None:
    roll.look({"w": 1}, 100.0)
    assert [roll.is_lost("w", age, 100.0) for age in (0, 14, 16, 3600)] == [False, False, True, True]
    assert roll.clock_apart("w", 3600, 100.0) is None, "it may be silent, or its clock may be wrong"
    assert [roll.is_unsure("w", age, 100.0) for age in (3, 16, -60)] == [False, True, True]


def test_a_worker_whose_beats_go_on_lives_whatever_its_clock_says(roll: Roll) -> None:
    roll.look({"behind": 7, "ahead": 7, "right": 7}, 100.0)
    roll.look({"behind": 8, "ahead": 8, "right": 8}, 104.0)
    for name, age in (("behind", 3601.0), ("ahead", -3599.0), ("right", 1.0)):
        assert not roll.is_lost(name, age, 105.0)
        assert not roll.is_unsure(name, age, 105.0)
    assert roll.clock_apart("behind", 3601.0, 105.0) == -3600.0
    assert roll.clock_apart("ahead", -3599.0, 105.0) == 3600.0
    assert roll.clock_apart("right", 1.0, 105.0) is None


def test_a_worker_that_says_nothing_while_we_look_is_lost_whatever_its_clock_says(roll: Roll) -> None:
    roll.look({"w": 7}, 100.0)
    roll.look({"w": 8}, 104.0)
    roll.look({"w": 8}, 120.0)
    assert roll.is_lost("w", 1.0, 120.0)
    roll.look({"new": 1}, 200.0)
    assert not roll.is_lost("new", -60.0, 201.0), "it has had no time for another beat"
    assert roll.is_lost("new", -60.0, 208.0), "a clock ahead hides nothing"
    assert not roll.is_lost("new", 9.0, 208.0), "where the clocks agree, some beats may be missed"
