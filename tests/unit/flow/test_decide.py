"""The whole retry rule."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from redrive import Category, Policy, constant, custom, immediate, never
from redrive.flow.decide import admit, decide
from redrive.model import Bury, Done, Outcome, Reason, Retry, Stage
from redrive.testing.builders import make_failure, make_message
from redrive.testing.clock import START

LIMIT = 100


def _decide(policy: Policy, *, attempt: int = 1, expires_in: timedelta | None = None, **failure: Any) -> Outcome:
    message = make_message(attempt=attempt, expires_at=None if expires_in is None else START + expires_in)
    return decide(message, make_failure(attempt=attempt, **failure), policy, START, Random(7))


def test_a_success_is_done() -> None:
    assert decide(make_message(), None, Policy(), START, Random(7)) == Done()


def test_a_message_with_three_attempts_is_retried_twice_and_then_buried() -> None:
    policy = Policy(attempts=3, backoff=constant("15s"))
    outcomes = [_decide(policy, attempt=attempt) for attempt in (1, 2, 3)]
    assert outcomes == [Retry(timedelta(seconds=15)), Retry(timedelta(seconds=15)), Bury(Reason.ATTEMPTS)]


def test_what_cannot_be_decoded_is_buried_at_once_whatever_the_policy() -> None:
    policy = Policy(attempts=9, categories={"validation": Policy(attempts=9)})
    assert _decide(policy, stage=Stage.DECODE, category=Category.VALIDATION) == Bury(Reason.UNDECODABLE)


def test_what_is_not_retryable_is_buried_at_once() -> None:
    assert _decide(Policy(), retryable=False, category=Category.PERMANENT) == Bury(Reason.PERMANENT)


def test_a_category_that_is_named_is_retried_even_where_it_would_not_be_by_itself() -> None:
    policy = Policy(categories={"permission": Policy(attempts=2, backoff=immediate())})
    denied: dict[str, Any] = {"retryable": False, "category": Category.PERMISSION}
    assert _decide(policy, **denied) == Retry(timedelta())
    assert _decide(policy, attempt=2, **denied) == Bury(Reason.ATTEMPTS)


def test_a_category_with_one_attempt_is_buried_at_once() -> None:
    policy = Policy(attempts=9, categories={"network": Policy(attempts=1)})
    assert _decide(policy, category=Category.NETWORK) == Bury(Reason.PERMANENT)
    assert isinstance(_decide(policy, category=Category.TRANSIENT), Retry)


def test_never_buries_at_the_first_failure() -> None:
    assert _decide(Policy(attempts=9, backoff=never())) == Bury(Reason.ATTEMPTS)


def test_a_function_that_says_no_more_buries() -> None:
    policy = Policy(attempts=9, backoff=custom(lambda attempt: "1s" if attempt < 2 else None))
    assert isinstance(_decide(policy, attempt=1), Retry)
    assert _decide(policy, attempt=2) == Bury(Reason.ATTEMPTS)


def test_a_retry_that_would_come_after_its_time_to_live_is_not_waited_for() -> None:
    policy = Policy(backoff=constant("60s"))
    assert _decide(policy, expires_in=timedelta(seconds=60)) == Bury(Reason.EXPIRED)
    assert _decide(policy, expires_in=timedelta(seconds=61)) == Retry(timedelta(seconds=60))


def test_a_message_that_may_be_attempted_is_admitted() -> None:
    message = make_message(attempt=5, expires_at=START + timedelta(seconds=1), body=b"x" * LIMIT)
    assert admit(message, 5, LIMIT, START) is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (make_message(attempt=6), Reason.CRASHED),
        (make_message(expires_at=START), Reason.EXPIRED),
        (make_message(body=b"x" * (LIMIT + 1)), Reason.TOO_LARGE),
        (make_message(attempt=6, expires_at=START), Reason.CRASHED),
    ],
)
def test_a_message_that_may_not_be_attempted_is_buried_without_an_attempt(message: object, reason: Reason) -> None:
    assert admit(message, 5, LIMIT, START) is reason  # type: ignore[arg-type]


def test_a_patient_category_leaves_room_for_its_attempts() -> None:
    policy = Policy(attempts=2, categories={"network": Policy(attempts=7)})
    assert admit(make_message(attempt=7), policy.most_attempts, LIMIT, START) is None
    assert admit(make_message(attempt=8), policy.most_attempts, LIMIT, START) is Reason.CRASHED
