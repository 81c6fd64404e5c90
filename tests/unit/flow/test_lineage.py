"""How a message that was sent back finds its letter again, and nobody else's."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.flow.lineage import AFTER, LETTER, REPLAY, RETRIES, Lineage, bare, dependencies, lineage, sent_back
from redrive.model import Reason, State, claimed, letter_id
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START

LATER = START + timedelta(hours=1)
OURS = (("a", b"1"), ("a", b"\xff\x00"), ("b", b""))


def test_a_message_on_its_first_way_comes_from_nowhere() -> None:
    assert lineage(make_message()) is None
    assert lineage(make_message(headers=OURS)) is None


def test_a_message_that_was_sent_back_knows_its_letter() -> None:
    letter = make_letter(make_message(headers=OURS), retries=2)
    assert lineage(sent_back(letter, now=LATER)) == Lineage(letter.id, 2, None)
    assert lineage(sent_back(letter, now=LATER, replay="r1")) == Lineage(letter.id, 2, "r1")


def test_only_our_own_headers_are_added_and_everything_else_goes_out_as_it_was() -> None:
    message = make_message(
        body=bytes(range(256)), headers=OURS, key=b"\x00k", tenant="acme", correlation_id="c", priority=-3, origin="o"
    )
    out = sent_back(make_letter(message), now=LATER, replay="r1")
    assert out.headers[: len(OURS)] == OURS
    assert {name for name, _ in out.headers[len(OURS) :]} == {LETTER, RETRIES, REPLAY}
    assert replace(out, headers=OURS, enqueued_at=message.enqueued_at) == message


def test_stripped_of_our_headers_it_is_the_message_that_its_sender_made() -> None:
    message = make_message(headers=OURS)
    assert bare(sent_back(make_letter(message), now=START, replay="r1")) == message


def test_sent_back_twice_it_has_our_headers_once() -> None:
    letter = make_letter(make_message(headers=OURS))
    once = sent_back(letter, now=LATER, replay="r1")
    twice = sent_back(replace(letter, message=once), now=LATER, replay="r2")
    assert [name for name, _ in twice.headers].count(LETTER) == 1
    assert twice.header(REPLAY) == b"r2"
    assert lineage(sent_back(replace(letter, message=once), now=LATER)) == Lineage(letter.id, 0, None)


def test_headers_copied_to_another_message_are_not_believed() -> None:
    copied = sent_back(make_letter(), now=LATER, replay="r1").headers
    assert lineage(make_message(headers=copied)) is None
    assert lineage(make_message(id="message-x", source="emails", headers=copied)) is None


def test_headers_that_are_not_ours_are_left_on_the_message_that_carries_them() -> None:
    forged = make_message(headers=((LETTER, b"somebody-elses"), ("a", b"1"), (RETRIES, b"9"), (REPLAY, b"r")))
    assert bare(forged) == forged


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"x" * 10_000, "ümlaut".encode()])
def test_a_broken_letter_header_is_just_a_header(value: bytes) -> None:
    assert lineage(make_message(headers=((LETTER, value),))) is None


@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"many", b"\xff", b"9" * 5000, "٣".encode()])
def test_a_broken_number_of_retries_is_none(value: bytes) -> None:
    letter = make_letter()
    message = replace(letter.message, headers=((LETTER, letter.id.encode()), (RETRIES, value), (REPLAY, b"\xff\xfe")))
    found = lineage(message)
    assert found is not None
    assert found.retries == 0


def test_an_empty_replay_header_is_no_replay() -> None:
    letter = make_letter()
    found = lineage(replace(letter.message, headers=((LETTER, letter.id.encode()), (REPLAY, b""))))
    assert found == Lineage(letter.id, 0, None)


def test_a_replay_uses_up_no_automatic_retry() -> None:
    letter = make_letter(retries=2)
    replayed = claimed(letter, State.REPLAYING, "me", START, LATER, replay="r1")
    assert lineage(sent_back(replayed, now=LATER, replay="r1")) == Lineage(letter.id, 2, "r1")
    retried = claimed(letter, State.RETRYING, "me", START, LATER)
    assert lineage(sent_back(retried, now=LATER)) == Lineage(letter.id, 3, None)


def test_a_time_to_live_that_killed_a_message_does_not_kill_it_again() -> None:
    letter = make_letter(make_message(expires_at=START), reason=Reason.EXPIRED)
    assert sent_back(letter, now=LATER).expires_at is None


def test_a_letter_starts_its_attempts_anew() -> None:
    assert sent_back(make_letter(make_message(attempt=5)), now=LATER).attempt == 1


def test_what_was_only_parked_goes_on_counting_its_attempts_and_uses_up_no_retry() -> None:
    parked = make_letter(make_message(attempt=3), reason=Reason.PARKED)
    out = sent_back(claimed(parked, State.RETRYING, "me", START, LATER), now=LATER)
    assert out.attempt == 3
    assert lineage(out) == Lineage(parked.id, 0, None)


def test_what_was_only_parked_keeps_its_time_to_live() -> None:
    parked = make_letter(make_message(expires_at=LATER), reason=Reason.PARKED)
    assert sent_back(claimed(parked, State.RETRYING, "me", START, LATER), now=LATER).expires_at == LATER


def test_a_retried_letter_that_is_parked_on_its_way_remembers_its_retries_and_its_replay() -> None:
    parked = make_letter(make_message(attempt=2, expires_at=START), reason=Reason.PARKED, retries=2, replay="r1")
    out = sent_back(claimed(parked, State.RETRYING, "me", START, LATER), now=LATER)
    assert lineage(out) == Lineage(parked.id, 2, "r1")
    assert out.expires_at is None


def test_a_message_that_was_merely_parked_was_not_retried() -> None:
    assert not Lineage("l", 0, None).was_retried
    assert Lineage("l", 1, None).was_retried
    assert Lineage("l", 0, "r1").was_retried


def test_dependencies_are_the_ids_in_their_header() -> None:
    assert dependencies(make_message()) == ()
    assert dependencies(make_message(headers=((AFTER, b"a\nb\n\nc"),))) == ("a", "b", "c")
    assert dependencies(make_message(headers=((AFTER, b"\xff\n"),))) == ("\ufffd",)


def test_a_message_does_not_wait_for_itself() -> None:
    assert dependencies(make_message(id="b", headers=((AFTER, b"a\nb"),))) == ("a",)


def test_a_letter_of_an_id_that_utf8_cannot_write_finds_back_too() -> None:
    message = make_message(id="\udcff")
    letter = make_letter(message)
    assert letter.id == letter_id("orders", "\udcff")
    found = lineage(sent_back(letter, now=LATER))
    assert found is not None
    assert found.letter == letter.id
