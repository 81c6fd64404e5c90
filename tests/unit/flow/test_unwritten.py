"""Decisions that could not be written, remembered until their message comes again."""

from __future__ import annotations

from msgspec.structs import replace

from redrive import Policy, constant
from redrive.flow.decision import Decision
from redrive.flow.lineage import sent_back
from redrive.flow.unwritten import Unwritten
from redrive.model import Bury, Category, Done, Reason, Retry, Stage, letter_id
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.transports.base import Delivery
from tests.unit.support import World, nothing

THRICE = Policy(attempts=3, backoff=constant("1s"))
DEAD = Bury(Reason.PERMANENT)
MESSAGE = make_message(body=b"same")
FAILURE = make_failure(attempt=1, retryable=False, category=Category.PERMANENT)


def made() -> Unwritten:
    return Unwritten(World().context(nothing, policy=THRICE))


def test_what_was_decided_is_decided_again_once() -> None:
    unwritten = made()
    unwritten.remember([Decision(Delivery(MESSAGE, 1), DEAD, FAILURE)])
    again = Delivery(replace(MESSAGE, attempt=2), 2)
    assert unwritten.decision(again) == Decision(again, DEAD, FAILURE)
    assert not unwritten.remembered
    assert unwritten.decision(again) is None


def test_a_success_and_a_retry_are_remembered_too() -> None:
    unwritten = made()
    other = make_message()
    retry = Retry(THRICE.backoff.delay(1, World().clock.rng))  # type: ignore[arg-type]
    unwritten.remember([Decision(Delivery(MESSAGE, 1), Done()), Decision(Delivery(other, 2), retry, FAILURE)])
    assert [unwritten.decision(Delivery(one, 3)).outcome for one in (MESSAGE, other)] == [Done(), retry]  # type: ignore[union-attr]


def test_another_message_under_its_id_is_attempted() -> None:
    unwritten = made()
    letter = replace(make_letter(), id=letter_id(MESSAGE.source, MESSAGE.id), message=MESSAGE)
    replayed = sent_back(letter, now=FAILURE.at, replay="r")
    for other in (replace(MESSAGE, body=b"other"), replayed):
        unwritten.remember([Decision(Delivery(MESSAGE, 1), DEAD, FAILURE)])
        assert unwritten.decision(Delivery(other, 2)) is None


def test_what_was_not_attempted_is_decided_anew() -> None:
    unwritten = made()
    expired = replace(FAILURE, stage=Stage.DELIVERY)
    unwritten.remember([Decision(Delivery(MESSAGE, 1), Bury(Reason.EXPIRED), expired)])
    assert not unwritten.remembered


def test_who_did_not_decide_it_sees_by_its_last_failure_that_it_was_to_be_buried() -> None:
    unwritten = made()
    passing = make_failure(attempt=2, retryable=True, category=Category.TRANSIENT)
    last = replace(passing, attempt=3)
    cases = {(FAILURE,): DEAD, (passing,): None, (passing, last): Bury(Reason.ATTEMPTS), (FAILURE, passing): None}
    for failures, expected in cases.items():
        found = unwritten.decision(Delivery(replace(MESSAGE, attempt=4), 1, failures))
        assert (None if found is None else found.outcome) == expected


def test_only_so_many_are_remembered() -> None:
    unwritten = made()
    messages = [make_message() for _ in range(10_002)]
    unwritten.remember(Decision(Delivery(message, 1), DEAD, FAILURE) for message in messages)
    assert [unwritten.decision(Delivery(message, 1)) is None for message in messages[:3]] == [True, True, False]
