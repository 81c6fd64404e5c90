"""What a policy says, and how it refuses what makes no sense."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive import Again, Category, Policy, constant, exponential, immediate, linear, never
from redrive.errors import ConfigError
from redrive.policy import category_named


def test_without_a_word_it_is_five_attempts_and_no_automatic_retry() -> None:
    policy = Policy()
    assert (policy.attempts, policy.again.attempts, policy.ttl, policy.timeout) == (5, 0, None, None)


def test_durations_are_read() -> None:
    policy = Policy(timeout="30s", ttl="7d")
    assert (policy.timeout, policy.ttl) == (timedelta(seconds=30), timedelta(days=7))


def test_a_category_has_its_own_rule_and_the_others_keep_the_general_one() -> None:
    policy = Policy(attempts=3, categories={"network": Policy(attempts=10, backoff=immediate())})
    assert policy.rule(Category.NETWORK).attempts == 10
    assert policy.rule(Category.NETWORK).retry is True
    assert policy.rule(Category.TRANSIENT).attempts == 3
    assert policy.rule(Category.TRANSIENT).retry is None


def test_the_most_attempts_are_those_of_the_most_patient_category() -> None:
    assert Policy(attempts=3, categories={"network": Policy(attempts=10)}).most_attempts == 10
    assert Policy(attempts=3, categories={"network": Policy(attempts=1)}).most_attempts == 3


def test_automatic_retries_take_the_policys_backoff_unless_they_have_their_own() -> None:
    assert Policy(backoff=immediate(), again=2).again == Again(2, immediate())
    assert Policy(again=Again(2, linear("5m"))).again == Again(2, linear("5m"))


def test_a_category_may_have_its_own_automatic_retries() -> None:
    policy = Policy(again=2, categories={"network": Policy(again=9), "resource": Policy()})
    assert policy.again_for(Category.NETWORK).attempts == 9
    assert policy.again_for(Category.RESOURCE).attempts == 2
    assert policy.again_for(Category.PERMANENT).attempts == 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"attempts": 0}, "attempts=0: a message is tried at least once"),
        ({"attempts": "5"}, "attempts='5'"),
        ({"attempts": 2.5}, "attempts=2.5"),
        ({"attempts": True}, "attempts=True"),
        ({"backoff": "5s"}, "backoff='5s': use never"),
        ({"backoff": exponential}, "use never"),
        ({"timeout": "0s"}, "timeout='0s': it has to be longer than nothing"),
        ({"timeout": timedelta(seconds=-1)}, "timeout="),
        ({"timeout": 30}, "timeout: 30 is not a duration"),
        ({"ttl": "soon"}, "ttl: 'soon' is not a duration"),
        ({"again": -1}, "again=-1: it is a number of automatic retries"),
        ({"again": "5"}, "again='5'"),
        ({"again": Again(-1, never())}, "again="),
        ({"again": Again(5, "5m")}, "again=.*use never"),  # type: ignore[arg-type]
        ({"categories": {"netwrok": Policy()}}, "unknown category 'netwrok': did you mean 'network'"),
        ({"categories": {"network": 3}}, "categories: network takes a Policy, not 3"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Policy(**wrong)


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan"), "a lot", None])
def test_jitter_is_a_share(jitter: Any) -> None:
    with pytest.raises(ConfigError, match="jitter="):
        constant("1s", jitter=jitter)


def test_a_delay_is_not_negative() -> None:
    with pytest.raises(ConfigError, match="cannot be negative"):
        linear(timedelta(seconds=-1))
    with pytest.raises(ConfigError, match="cannot be negative"):
        exponential("1s", cap=timedelta(seconds=-1))


def test_a_category_is_known_by_its_name() -> None:
    assert category_named("permission") is Category.PERMISSION
    assert category_named(Category.NETWORK) is Category.NETWORK


def test_a_policy_shows_what_it_says() -> None:
    assert repr(Policy(attempts=2, backoff=never(), again=1)) == "Policy(attempts=2, backoff=Never(), again=1)"
