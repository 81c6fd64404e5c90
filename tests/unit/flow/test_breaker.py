"""What keeps failing is left alone for a while, then tried with one letter."""

from __future__ import annotations

from datetime import timedelta

from redrive.flow.breaker import Breaker, BreakerRule, Position

RULE = BreakerRule(failures=3, wait=timedelta(seconds=30), longest=timedelta(seconds=100))


def _position(breaker: Breaker) -> Position:
    return breaker.position  # asked anew each time: to mypy a property is as good as a constant


class Time:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def _opened() -> tuple[Breaker, Time]:
    time = Time()
    breaker = Breaker(RULE, time)
    for _ in range(3):
        breaker.failed()
    return breaker, time


def test_closed_lets_all_pass() -> None:
    breaker = Breaker(RULE, Time())
    assert _position(breaker) is Position.CLOSED
    assert breaker.capacity(100) == 100


def test_failures_in_a_row_open_it_and_then_none_may_pass() -> None:
    breaker, _ = _opened()
    assert _position(breaker) is Position.OPEN
    assert breaker.capacity(100) == 0


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker(RULE, Time())
    for _ in range(10):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert _position(breaker) is Position.CLOSED


def test_one_may_try_as_soon_as_somebody_has_seen_it_well() -> None:
    breaker, time = _opened()
    time.seconds = 1
    breaker.hopeful()
    assert _position(breaker) is Position.HALF_OPEN
    assert breaker.capacity(100) == 1
    breaker.sent(1)
    breaker.failed()
    assert _position(breaker) is Position.OPEN
    closed = Breaker(RULE, Time())
    closed.hopeful()
    assert _position(closed) is Position.CLOSED


def test_after_its_wait_one_may_try_and_no_second_beside_it() -> None:
    breaker, time = _opened()
    time.seconds = 30
    assert _position(breaker) is Position.HALF_OPEN
    assert breaker.capacity(100) == 1
    assert breaker.capacity(0) == 0
    breaker.sent(1)
    assert breaker.capacity(100) == 0


def test_a_trial_that_succeeds_closes_it() -> None:
    breaker, time = _opened()
    time.seconds = 30
    breaker.sent(1)
    breaker.succeeded()
    assert _position(breaker) is Position.CLOSED
    assert breaker.capacity(5) == 5
    breaker.failed()
    assert _position(breaker) is Position.CLOSED


def test_a_trial_that_fails_opens_it_again_for_longer_up_to_the_longest() -> None:
    breaker, time = _opened()
    for wait in (60, 100, 100):
        time.seconds += 100
        breaker.sent(breaker.capacity(1))
        breaker.failed()
        assert _position(breaker) is Position.OPEN
        time.seconds += wait - 1
        assert _position(breaker) is Position.OPEN
        time.seconds += 1
        assert _position(breaker) is Position.HALF_OPEN


def test_a_trial_that_could_not_even_be_sent_opens_it_again() -> None:
    breaker, time = _opened()
    time.seconds = 30
    assert breaker.capacity(1) == 1
    breaker.failed()
    assert _position(breaker) is Position.OPEN
    time.seconds = 30 + 59
    assert _position(breaker) is Position.OPEN


def test_late_failures_of_what_was_sent_before_change_nothing_while_it_is_open() -> None:
    breaker, time = _opened()
    for _ in range(10):
        breaker.failed()
    time.seconds = 30
    assert _position(breaker) is Position.HALF_OPEN


def test_a_trial_that_nobody_hears_of_again_makes_room_for_another() -> None:
    breaker, time = _opened()
    time.seconds = 30
    breaker.sent(1)
    breaker.forgotten()
    assert breaker.capacity(5) == 1


def test_nothing_sent_is_no_trial() -> None:
    breaker, time = _opened()
    time.seconds = 30
    breaker.sent(0)
    assert breaker.capacity(5) == 1


def test_each_new_position_is_announced_once() -> None:
    time, told = Time(), list[Position]()
    breaker = Breaker(RULE, time, told.append)
    breaker.succeeded()
    for _ in range(5):
        breaker.failed()
    assert told == [Position.OPEN]
    time.seconds = 30
    breaker.sent(1)
    breaker.failed()
    assert told == [Position.OPEN, Position.HALF_OPEN, Position.OPEN]
    time.seconds = 1000
    breaker.sent(1)
    breaker.succeeded()
    breaker.succeeded()
    assert told[3:] == [Position.HALF_OPEN, Position.CLOSED]
