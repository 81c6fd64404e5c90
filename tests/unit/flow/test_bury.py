"""The letter of a message that died."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from redrive import Again, Category, Letter, Message, Policy, constant, linear, never
from redrive.flow.bury import letter_of, parked
from redrive.flow.lineage import AFTER, sent_back
from redrive.model import Failure, Reason, State, claimed, letter_id
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.transports.base import Delivery

LATER = START + timedelta(hours=1)


def _bury(
    message: Message, policy: Policy | None = None, failure: Failure | None = None, history: tuple[Failure, ...] = ()
) -> Letter:
    return letter_of(
        Delivery(message, 1, history),
        failure or make_failure(at=LATER),
        Reason.ATTEMPTS,
        policy or Policy(),
        transport="default",
        now=LATER,
        rng=Random(7),
    )


def _came_back(letter: Letter, to: State = State.RETRYING, replay: str | None = None) -> Message:
    return sent_back(claimed(letter, to, "me", START, LATER, replay), now=LATER, replay=replay)


def test_a_letter_has_every_failure_of_its_message() -> None:
    first, second = make_failure(attempt=1), make_failure(attempt=2, at=LATER)
    letter = _bury(make_message(attempt=2), failure=second, history=(first,))
    assert letter.failures == (first, second)


def test_the_message_is_kept_as_it_was_sent() -> None:
    message = make_message(body=b"\xff", headers=(("h", b"1"),), attempt=3)
    letter = _bury(message)
    assert letter.message == replace(message, attempt=1)
    assert letter.id == letter_id(message.source, message.id)


def test_without_automatic_retries_it_waits_for_a_person() -> None:
    letter = _bury(make_message())
    assert (letter.state, letter.next_retry_at, letter.max_retries) == (State.PENDING, None, 0)


def test_with_automatic_retries_it_says_when_the_next_is() -> None:
    letter = _bury(make_message(), Policy(again=Again(3, linear("5m"))))
    assert (letter.state, letter.next_retry_at) == (State.PENDING, LATER + timedelta(minutes=5))
    assert (letter.retries, letter.max_retries) == (0, 3)


def test_each_automatic_retry_that_fails_waits_longer_and_the_last_exhausts_it() -> None:
    policy = Policy(again=Again(2, linear("5m")))
    letter = _bury(make_message(), policy)
    waits = []
    while letter.next_retry_at is not None:
        waits.append(letter.next_retry_at - LATER)
        letter = _bury(_came_back(letter), policy)
    assert waits == [timedelta(minutes=5), timedelta(minutes=10)]
    assert (letter.state, letter.retries) == (State.EXHAUSTED, 2)


def test_a_failed_replay_exhausts_it_whatever_retries_were_left() -> None:
    policy = Policy(again=5)
    letter = _bury(_came_back(_bury(make_message(), policy), State.REPLAYING, "r1"), policy)
    assert (letter.state, letter.next_retry_at, letter.retries) == (State.EXHAUSTED, None, 0)


def test_what_will_not_go_away_is_not_retried_by_itself() -> None:
    failure = make_failure(retryable=False, category=Category.PERMANENT, at=LATER)
    letter = _bury(make_message(), Policy(again=5), failure)
    assert (letter.state, letter.next_retry_at) == (State.PENDING, None)


def test_unless_the_policy_names_its_category() -> None:
    failure = make_failure(retryable=False, category=Category.PERMISSION, at=LATER)
    policy = Policy(again=Again(1, constant("1m")), categories={"permission": Policy(attempts=2)})
    assert _bury(make_message(), policy, failure).next_retry_at == LATER + timedelta(minutes=1)


def test_a_category_that_is_buried_at_once_is_not_retried_unless_it_says_so_itself() -> None:
    failure = make_failure(category=Category.NETWORK, at=LATER)
    policy = Policy(again=3, categories={"network": Policy(attempts=1)})
    assert _bury(make_message(), policy, failure).next_retry_at is None
    policy = Policy(again=3, categories={"network": Policy(attempts=1, again=Again(1, constant("1m")))})
    assert _bury(make_message(), policy, failure).next_retry_at == LATER + timedelta(minutes=1)


def test_a_category_may_be_retried_in_its_own_rhythm() -> None:
    failure = make_failure(category=Category.NETWORK, at=LATER)
    policy = Policy(again=1, categories={"network": Policy(again=Again(7, constant("9m")))})
    letter = _bury(make_message(), policy, failure)
    assert (letter.next_retry_at, letter.max_retries) == (LATER + timedelta(minutes=9), 7)


def test_never_waits_for_a_person() -> None:
    assert _bury(make_message(), Policy(again=Again(5, never()))).next_retry_at is None


def test_a_letter_lives_as_long_as_its_policy_says() -> None:
    assert _bury(make_message()).expires_at is None
    assert _bury(make_message(), Policy(ttl="7d")).expires_at == LATER + timedelta(days=7)


def test_dependencies_come_from_the_message() -> None:
    assert _bury(make_message(headers=((AFTER, b"a\nb"),))).depends_on == ("a", "b")


def test_one_cause_over_two_sources_is_one_group() -> None:
    assert _bury(make_message(source="orders")).group == _bury(make_message(source="emails")).group


def test_a_parked_message_waits_in_the_store_and_goes_on_counting() -> None:
    message = make_message(attempt=2, headers=((AFTER, b"a"),))
    first, second = make_failure(attempt=1), make_failure(attempt=2, at=LATER)
    letter = parked(Delivery(message, 1, (first,)), second, timedelta(seconds=15), transport="default", now=LATER)
    assert (letter.state, letter.reason) == (State.PENDING, Reason.PARKED)
    assert letter.next_retry_at == LATER + timedelta(seconds=15)
    assert letter.message == replace(message, attempt=3)
    assert letter.failures == (first, second)
    assert letter.depends_on == ("a",)


@pytest.mark.parametrize("rounds", [1, 5])
def test_retries_of_a_letter_are_used_up_even_where_each_attempt_is_parked(rounds: int) -> None:
    """A transport that cannot delay parks a retried letter's second attempt: that must not start the count anew."""
    policy = Policy(attempts=2, again=Again(rounds, constant("1m")))
    letter, retried = _bury(make_message(), policy), 0
    while letter.next_retry_at is not None and retried < 20:
        retried += 1
        first = _came_back(letter)
        waiting = parked(Delivery(first, 1), make_failure(at=LATER), timedelta(seconds=1), transport="t", now=LATER)
        letter = _bury(_came_back(waiting), policy)
    assert (retried, letter.state, letter.retries) == (rounds, State.EXHAUSTED, rounds)


def test_a_replay_is_remembered_while_its_message_is_parked() -> None:
    first = _came_back(make_letter(), State.REPLAYING, "r1")
    waiting = parked(Delivery(first, 1), make_failure(at=LATER), timedelta(seconds=1), transport="t", now=LATER)
    again = _came_back(waiting)
    assert again.header("redrive-replay") == b"r1"
    assert _bury(again, Policy(again=5)).state is State.EXHAUSTED
