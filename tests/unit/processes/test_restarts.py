"""Who dies is started again after a pause that grows, starts anew after a while of health, and ends at a limit."""

from __future__ import annotations

from datetime import timedelta

from redrive.config.settings import Processes
from redrive.processes.restarts import Restarts

RULE = Processes(
    pause=timedelta(seconds=1),
    longest_pause=timedelta(seconds=4),
    healthy=timedelta(seconds=60),
    deaths=6,
    within=timedelta(seconds=100),
)


def test_the_pause_doubles_up_to_the_longest() -> None:
    restarts = Restarts(RULE)
    assert [restarts.died(at, lived=1) for at in range(4)] == [1, 2, 4, 4]


def test_who_was_healthy_waits_as_little_as_the_first_time() -> None:
    restarts = Restarts(RULE)
    assert [restarts.died(0, 1), restarts.died(1, 1), restarts.died(70, 60), restarts.died(71, 1)] == [1, 2, 1, 2]


def test_so_many_deaths_in_so_long_are_the_end() -> None:
    restarts = Restarts(RULE)
    assert [restarts.died(at, 1) is None for at in range(6)] == [False] * 5 + [True]


def test_deaths_of_long_ago_do_not_count() -> None:
    restarts = Restarts(RULE)
    assert all(restarts.died(at, 1) is not None for at in range(0, 2000, 20))


def test_without_a_limit_there_is_no_end() -> None:
    restarts = Restarts(Processes(deaths=None))
    assert all(restarts.died(at, 0) is not None for at in range(1000))


def test_other_code_starts_anew() -> None:
    restarts = Restarts(RULE)
    for at in range(5):
        restarts.died(at, 1)
    restarts.forget()
    assert restarts.died(5, 1) == 1
