"""What Redis keeps of a letter is the letter."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from redrive.model import Failure, Letter, Message
from redrive.stores.redis.codec import changed_head, document_of, found, head_of
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.stores import LETTERS

_FIELDS = {
    Letter: "id message failures state reason group created_at updated_at transport next_retry_at retries max_retries "
    "resends replay depends_on expires_at owner lease_until foreign version edit archived_from",
    Message: "id source body enqueued_at headers key tenant correlation_id attempt priority expires_at origin "
    "not_before",
    Failure: "type message category retryable at attempt stage code stack frames worker version edition",
}


@pytest.mark.parametrize("kind", _FIELDS)
def test_a_field_that_is_new_to_the_model_is_new_to_this_store(kind: type[Letter | Message | Failure]) -> None:
    assert list(kind.__struct_fields__) == _FIELDS[kind].split(), "teach stores/redis/codec.py the new field"


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS.keys())
def test_head_and_document_make_the_letter(letter: Letter) -> None:
    timed = replace(letter, message=replace(letter.message, not_before=START))
    assert found(letter.id, head_of(timed), document_of(timed, timed.message.body), None).letter == timed


def test_what_was_written_before_there_were_letters_of_others_is_still_read() -> None:
    letter = make_letter()
    before = msgspec.msgpack.encode(msgspec.msgpack.decode(document_of(letter, letter.message.body))[:-1])
    assert found(letter.id, head_of(letter), before, None).letter == letter


def test_a_body_can_be_part_of_the_entry() -> None:
    letter = make_letter(make_message(body=b'{"n": 1}'))
    entry = b'{"data":{"n": 1}}'
    assert found(letter.id, head_of(letter), document_of(letter, (8, 16)), entry).letter == letter


def test_failures_that_are_alike_take_little_room() -> None:
    first = make_failure(stack="a long stack\n" * 100)
    alike = [replace(first, attempt=n, at=START + timedelta(minutes=n)) for n in range(1, 6)]
    other = make_failure(attempt=6, code="SMTP 550", frames=("shop:charge",), type="X", worker="w")
    letter = make_letter(make_message(), *alike, other, alike[0])
    document = document_of(letter, b"")
    assert len(document) < 3 * len(first.stack)
    assert found(letter.id, head_of(letter), document, None).letter.failures == letter.failures


def test_a_head_that_changes_tells_what_it_told_of_the_document() -> None:
    letter = make_letter(make_message(), make_failure(attempt=1), make_failure(attempt=2))
    before = found(letter.id, head_of(letter, seq=7, score=1.5, is_body_in_entry=True), None, None)
    after = found(letter.id, changed_head(replace(before.letter, retries=3), before.head), None, None)
    assert after.head == replace(before.head, retries=3)
