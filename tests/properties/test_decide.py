"""The rule has an answer for everything, and keeps its promises in each."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive.flow.backoff import Backoff, constant, custom, exponential, immediate, linear, never
from redrive.flow.decide import admit, decide
from redrive.model import Bury, Category, Failure, Message, Reason, Retry, Stage
from redrive.policy import Policy
from redrive.testing.builders import make_failure, make_message
from redrive.testing.clock import START

SPANS = st.timedeltas(timedelta(), timedelta(days=400))
NONSENSE: Any = st.sampled_from([None, 15, "soon", timedelta.max, timedelta.min, "1s"])
BACKOFFS: st.SearchStrategy[Backoff] = st.one_of(
    st.builds(never),
    st.builds(immediate),
    st.builds(constant, SPANS, jitter=st.floats(0, 1)),
    st.builds(linear, SPANS, cap=SPANS, jitter=st.floats(0, 1)),
    st.builds(exponential, SPANS, cap=SPANS, jitter=st.floats(0, 1)),
    NONSENSE.map(lambda answer: custom(lambda attempt: answer)),
)
PLAIN = st.builds(Policy, st.integers(1, 20), BACKOFFS)
POLICIES = st.builds(
    lambda attempts, backoff, categories: Policy(attempts, backoff, categories=categories),
    st.integers(1, 20),
    BACKOFFS,
    st.dictionaries(st.sampled_from(Category), PLAIN, max_size=6),
)
MESSAGES = st.builds(
    lambda attempt, ttl, body: make_message(
        attempt=attempt, expires_at=None if ttl is None else START + ttl, body=body
    ),
    st.integers(1, 10_000),
    st.none() | st.timedeltas(timedelta(days=-1), timedelta(days=400)),
    st.binary(max_size=50),
)
FAILURES = st.builds(
    lambda category, retryable, stage: make_failure(category=category, retryable=retryable, stage=stage),
    st.sampled_from(Category),
    st.booleans(),
    st.sampled_from(Stage),
)


@given(MESSAGES, FAILURES, POLICIES, st.integers())
def test_every_failure_is_retried_or_buried_and_a_retry_keeps_every_bound(
    message: Message, failure: Failure, policy: Policy, seed: int
) -> None:
    outcome = decide(message, failure, policy, START, Random(seed))
    assert isinstance(outcome, Retry | Bury)
    if isinstance(outcome, Bury):
        return
    rule = policy.rule(failure.category)
    assert failure.stage is not Stage.DECODE
    assert message.attempt < rule.attempts <= policy.most_attempts
    assert failure.retryable or failure.category in policy.categories
    assert timedelta() <= outcome.after <= timedelta(days=730)
    assert message.expires_at is None or START + outcome.after < message.expires_at


@given(FAILURES, BACKOFFS, st.integers(1, 100), st.integers())
def test_one_attempt_is_one_attempt(failure: Failure, backoff: Backoff, attempt: int, seed: int) -> None:
    message = make_message(attempt=attempt)
    assert isinstance(decide(message, failure, Policy(1, backoff), START, Random(seed)), Bury)


@given(MESSAGES, FAILURES, st.integers(1, 20), st.integers())
def test_never_means_never(message: Message, failure: Failure, attempts: int, seed: int) -> None:
    assert isinstance(decide(message, failure, Policy(attempts, never()), START, Random(seed)), Bury)


@given(MESSAGES, POLICIES, st.integers(0, 50))
def test_what_is_admitted_has_an_attempt_left_is_in_time_and_fits(message: Message, policy: Policy, limit: int) -> None:
    reason = admit(message, policy.most_attempts, limit, START)
    fits = len(message.body) <= limit
    in_time = message.expires_at is None or message.expires_at > START
    assert (reason is None) == (message.attempt <= policy.most_attempts and in_time and fits)
    assert reason in (None, Reason.CRASHED, Reason.EXPIRED, Reason.TOO_LARGE)


@given(MESSAGES, POLICIES, FAILURES, st.integers())
def test_what_was_retried_is_admitted_the_next_time(
    message: Message, policy: Policy, failure: Failure, seed: int
) -> None:
    outcome = decide(message, failure, policy, START, Random(seed))
    if isinstance(outcome, Retry):
        again = make_message(attempt=message.attempt + 1, expires_at=message.expires_at)
        assert admit(again, policy.most_attempts, 1000, START + outcome.after) is None
