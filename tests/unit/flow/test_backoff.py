"""How long until the next attempt."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from redrive.flow.backoff import Backoff, constant, custom, exponential, immediate, linear, never

RNG = Random(7)


def _seconds(backoff: Backoff, *attempts: int) -> list[float]:
    delays = [backoff.delay(attempt, RNG) for attempt in attempts]
    return [delay.total_seconds() for delay in delays if delay is not None]


def test_never_has_no_next_attempt() -> None:
    assert never().delay(1, RNG) is None


def test_immediate_is_at_once() -> None:
    assert _seconds(immediate(), 1, 2, 100) == [0, 0, 0]


def test_constant_is_the_same_each_time() -> None:
    assert _seconds(constant("15s"), 1, 2, 100) == [15, 15, 15]


def test_linear_grows_by_its_base() -> None:
    assert _seconds(linear("2s", cap="5s"), 1, 2, 3, 100) == [2, 4, 5, 5]


def test_exponential_doubles_up_to_its_cap() -> None:
    assert _seconds(exponential("1s", cap="60s"), 1, 2, 3, 6, 7, 8) == [1, 2, 4, 32, 60, 60]


def test_jitter_spreads_by_its_share_to_both_sides() -> None:
    delays = _seconds(exponential("1s", cap="60s", jitter=0.25), *[10] * 500)
    assert 45 <= min(delays) < 48
    assert 72 < max(delays) <= 75


def test_the_workflow_contract_is_expressible() -> None:
    """Linear 5·(n+1) min and exponential min(2^n, 60) min, where n counts the retries made so far."""
    straight, doubling = linear("5m"), exponential("1m", cap="60m")
    for n in range(50):
        assert straight.delay(n + 1, RNG) == timedelta(minutes=5 * (n + 1))
        assert doubling.delay(n + 1, RNG) == timedelta(minutes=min(2**n, 60))


def test_the_email_contract_is_expressible() -> None:
    """min(60 s, 1 s · 2^(attempt-1)) ± 25 %."""
    backoff = exponential("1s", cap="60s", jitter=0.25)
    for attempt in range(1, 50):
        (seconds,) = _seconds(backoff, attempt)
        assert abs(seconds / min(60, 2 ** (attempt - 1)) - 1) <= 0.25 + 1e-6


def test_the_pipeline_contract_is_expressible() -> None:
    """retry_backoff · attempt, and none after the last: that is what attempts are for."""
    assert _seconds(linear("3s"), 1, 2, 3) == [3, 6, 9]


def test_a_function_of_ones_own_says_how_long() -> None:
    steps: dict[int, Any] = {1: "5s", 2: timedelta(minutes=1), 3: None}
    backoff = custom(steps.get)
    assert [backoff.delay(attempt, RNG) for attempt in (1, 2, 3)] == [
        timedelta(seconds=5),
        timedelta(minutes=1),
        None,
    ]


def test_a_function_that_says_less_than_nothing_means_at_once() -> None:
    assert custom(lambda attempt: timedelta(seconds=-5)).delay(1, RNG) == timedelta()


def test_a_function_that_says_forever_is_held_to_a_year() -> None:
    assert custom(lambda attempt: timedelta.max).delay(1, RNG) == timedelta(days=365)


@pytest.mark.parametrize("answer", [15, "soon", object(), timedelta])
def test_a_function_that_answers_nonsense_ends_the_retries_and_not_the_worker(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert custom(lambda attempt: answer).delay(1, RNG) is None
    assert "custom" in caplog.text


def test_a_function_that_raises_ends_the_retries_and_not_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    def broken(attempt: int) -> timedelta:
        raise ZeroDivisionError("attempt / 0")

    assert custom(broken).delay(1, RNG) is None
    assert "attempt / 0" in caplog.text
