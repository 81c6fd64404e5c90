"""Bounds of backoff, for every attempt there can be."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from redrive.flow.backoff import Backoff, constant, exponential, linear

ATTEMPTS = st.integers(1, 10_000)
SPANS = st.timedeltas(timedelta(), timedelta(days=400))
JITTER = st.floats(0, 1)
YEAR = timedelta(days=365)


def _delay(backoff: Backoff, attempt: int, seed: int) -> timedelta:
    delay = backoff.delay(attempt, Random(seed))
    assert delay is not None
    return delay


@given(ATTEMPTS, SPANS, SPANS, JITTER, st.integers(), st.sampled_from([linear, exponential]))
def test_a_delay_is_never_negative_and_never_over_its_cap_and_jitter(
    attempt: int, base: timedelta, cap: timedelta, jitter: float, seed: int, shape: type[Backoff]
) -> None:
    delay = _delay(shape(base, cap=cap, jitter=jitter), attempt, seed)  # type: ignore[call-arg]
    assert timedelta() <= delay <= min(cap, YEAR) * (1 + jitter) + timedelta(microseconds=1)


@given(ATTEMPTS, SPANS, JITTER, st.integers())
def test_jitter_stays_within_its_share(attempt: int, base: timedelta, jitter: float, seed: int) -> None:
    exact = _delay(linear(base), attempt, seed)
    spread = _delay(linear(base, jitter=jitter), attempt, seed)
    assert abs(spread - exact) <= exact * jitter + timedelta(microseconds=1)


@given(ATTEMPTS, SPANS, SPANS)
def test_without_jitter_a_later_attempt_never_waits_less(attempt: int, base: timedelta, cap: timedelta) -> None:
    for backoff in (constant(base), linear(base, cap=cap), exponential(base, cap=cap)):
        assert _delay(backoff, attempt, 0) <= _delay(backoff, attempt + 1, 0)


@given(st.integers(1, 1000))
def test_linear_and_exponential_are_their_formulas(attempt: int) -> None:
    assert _delay(linear("1s"), attempt, 0) == timedelta(seconds=attempt)
    assert _delay(exponential("1ms"), attempt, 0) == min(timedelta(milliseconds=2 ** min(attempt - 1, 40)), YEAR)
