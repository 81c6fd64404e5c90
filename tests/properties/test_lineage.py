"""Whatever headers a message carries, lineage is found where it is ours and nowhere else."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.flow.lineage import AFTER, LETTER, REPLAY, RETRIES, bare, dependencies, lineage, sent_back
from redrive.model import Headers, letter_id
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START

LATER = START + timedelta(hours=1)
NAMES = st.text(max_size=8) | st.sampled_from([LETTER, REPLAY, RETRIES, AFTER])
HEADERS: st.SearchStrategy[Headers] = st.lists(st.tuples(NAMES, st.binary(max_size=20)), max_size=8).map(tuple)
TEXTS = st.text(min_size=1, max_size=20)
REPLAYS = st.none() | st.from_regex(r"[\w.:-]{1,20}", fullmatch=True).filter(str.isascii)


@given(TEXTS, TEXTS, HEADERS)
def test_any_headers_can_be_read_and_only_a_match_is_believed(source: str, id: str, headers: Headers) -> None:
    message = make_message(source=source, id=id, headers=headers)
    found = lineage(message)
    assert found is None or message.header(LETTER) == letter_id(source, id).encode()
    assert message.id not in dependencies(message)


@given(TEXTS, TEXTS, HEADERS, st.binary(max_size=50), st.integers(0, 10**8), REPLAYS)
def test_there_and_back_again(
    source: str, id: str, headers: Headers, body: bytes, retries: int, replay: str | None
) -> None:
    plain: Headers = tuple(pair for pair in headers if pair[0] not in (LETTER, REPLAY, RETRIES))
    message = make_message(source=source, id=id, headers=plain, body=body)
    out = sent_back(make_letter(message, retries=retries), now=LATER, replay=replay)
    found = lineage(out)
    assert found is not None
    assert (found.letter, found.retries, found.replay) == (letter_id(source, id), retries, replay)
    assert replace(bare(out), enqueued_at=START) == message


@given(HEADERS, HEADERS)
def test_what_one_message_carries_says_nothing_of_another(first: Headers, second: Headers) -> None:
    out = sent_back(make_letter(make_message(id="first", headers=first)), now=LATER, replay="r")
    assert lineage(make_message(id="second", headers=(*second, *out.headers))) is None
