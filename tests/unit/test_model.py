"""Letters as values: how one dies again, is claimed, and moves."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from redrive.model import (
    OPEN,
    UNRESOLVED,
    Category,
    Reason,
    State,
    claimed,
    letter_id,
    merge_failures,
    moved,
    rejoined,
    with_headers,
)
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START

LATER = START + timedelta(hours=1)


def test_a_value_is_never_changed() -> None:
    with pytest.raises(AttributeError):
        make_message().attempt = 2  # type: ignore[misc]


def test_of_a_repeated_header_the_last_counts() -> None:
    message = make_message(headers=(("a", b"1"), ("b", b"2"), ("a", b"3")))
    assert message.header("a") == b"3"
    assert message.header("A") is None


def test_headers_are_set_and_removed_and_the_others_keep_their_place_and_repeats() -> None:
    headers = (("x", b"1"), ("trace-id", b"old"), ("x", b"2"), ("gone", b""))
    assert with_headers(headers, trace_id=b"new", gone=None) == (("x", b"1"), ("x", b"2"), ("trace-id", b"new"))


def test_one_message_of_one_source_is_one_letter() -> None:
    assert letter_id("orders", "1") == letter_id("orders", "1")
    assert len({letter_id("orders", "1"), letter_id("orders", "2"), letter_id("emails", "1")}) == 3


def test_an_id_that_utf8_cannot_write_is_no_other_messages_id() -> None:
    assert letter_id("orders", "a\ud800") != letter_id("orders", "a?")


def test_the_same_failure_twice_changes_nothing() -> None:
    letter = make_letter()
    assert rejoined(letter, letter) is None
    assert merge_failures(letter.failures, letter.failures) == letter.failures


def test_a_letter_that_died_again_keeps_its_story_and_its_message() -> None:
    message = make_message(body=b"as sent", enqueued_at=START, expires_at=LATER)
    old = make_letter(
        message, depends_on=("a",), resends=2, replay="r1", state=State.REPLAYING, owner="me", lease_until=LATER
    )
    second = make_failure(at=LATER, category=Category.NETWORK)
    new = make_letter(
        replace(message, enqueued_at=LATER, expires_at=None), second, at=LATER, state=State.EXHAUSTED, retries=1
    )
    now = rejoined(old, new)
    assert now is not None
    assert now.message == message
    assert now.failures == (*old.failures, second)
    assert (now.created_at, now.updated_at) == (LATER, LATER)
    assert (now.state, now.category, now.retries) == (State.EXHAUSTED, Category.NETWORK, 1)
    assert (now.resends, now.replay, now.depends_on) == (2, "r1", ("a",))
    assert (now.owner, now.lease_until) == (None, None)


def test_a_new_message_under_an_old_id_is_not_lost_behind_the_old_one() -> None:
    old = make_letter(make_message(id="order-7", body=b"first", tenant="acme"), state=State.RESOLVED)
    new = make_letter(make_message(id="order-7", body=b"second", tenant="acme"), make_failure(at=LATER), at=LATER)
    now = rejoined(old, new)
    assert now is not None
    assert (now.message.body, now.message.tenant) == (b"second", "acme")
    assert len(now.failures) == 2


def test_a_claim_counts_a_resend_and_a_retry_once() -> None:
    first = claimed(make_letter(), State.RETRYING, "me", START, LATER)
    assert (first.state, first.owner, first.lease_until) == (State.RETRYING, "me", LATER)
    assert (first.resends, first.retries) == (1, 1)
    again = claimed(first, State.RETRYING, "me", START, LATER)
    assert (again.resends, again.retries) == (1, 1)


def test_a_replays_claim_is_no_automatic_retry() -> None:
    letter = claimed(make_letter(), State.REPLAYING, "me", START, LATER, replay="r1")
    assert (letter.resends, letter.retries, letter.replay) == (1, 0, "r1")


@pytest.mark.parametrize("to", [State.RETRYING, State.REPLAYING])
def test_a_claim_that_is_undone_leaves_the_letter_as_it_was(to: State) -> None:
    before = make_letter(next_retry_at=LATER)
    after = moved(claimed(before, to, "me", START, LATER), State.PENDING, LATER)
    assert replace(after, updated_at=before.updated_at) == before


def test_a_move_ends_the_lease_and_the_plan_of_a_retry() -> None:
    letter = moved(make_letter(owner="me", lease_until=LATER, next_retry_at=LATER), State.ARCHIVED, LATER)
    assert (letter.state, letter.owner, letter.lease_until, letter.next_retry_at) == (State.ARCHIVED, None, None, None)


def test_what_is_open_still_asks_for_something() -> None:
    assert set(State) - set(OPEN) == {State.SENT, State.RESOLVED, State.ARCHIVED}
    assert set(State) - set(UNRESOLVED) == {State.RESOLVED, State.ARCHIVED}


def test_a_letter_is_written_and_read_back_to_the_byte() -> None:
    letter = make_letter(
        make_message(body=bytes(range(256)), headers=(("h", b"\xff"),), key=b"\0"), reason=Reason.PARKED
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(letter), type=type(letter)) == letter
