"""Whatever happens to a breaker, it lets at most one try while it doubts, and never stays shut for ever."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from redrive.flow.breaker import Breaker, BreakerRule, Position

RULE = BreakerRule(failures=3, wait=timedelta(seconds=10), longest=timedelta(seconds=100))
STEPS = st.lists(st.sampled_from(["failed", "succeeded", "forgotten", "send"]) | st.integers(0, 200), max_size=60)


def _position(breaker: Breaker) -> Position:
    return breaker.position  # asked anew each time: to mypy a property is as good as a constant


@given(STEPS)
def test_its_promises_hold_on_every_way(steps: list[str | int]) -> None:
    now = 0.0
    breaker = Breaker(RULE, lambda: now)
    for step in steps:
        if isinstance(step, int):
            now += step
        elif step == "send":
            breaker.sent(breaker.capacity(50))
        else:
            getattr(breaker, step)()
        room = breaker.capacity(50)
        match breaker.position:
            case Position.CLOSED:
                assert room == 50
            case Position.OPEN:
                assert room == 0
            case Position.HALF_OPEN:
                assert room <= 1
    now += 100
    assert _position(breaker) is not Position.OPEN
    breaker.forgotten()
    assert breaker.capacity(50) >= 1
    breaker.succeeded()
    assert breaker.capacity(50) == 50


@given(st.integers(1, 60))
def test_however_often_it_opens_its_wait_stays_within_the_longest(times: int) -> None:
    now = 0.0
    breaker = Breaker(RULE, lambda: now)
    for _ in range(times):
        while _position(breaker) is not Position.OPEN:
            breaker.failed()
        now += 100
        assert _position(breaker) is Position.HALF_OPEN
