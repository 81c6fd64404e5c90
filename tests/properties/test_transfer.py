"""What is exported is imported, to the byte."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from redrive.forensics.transfer import letters_of, line_of
from redrive.model import Category, Failure, Letter, Message, Reason, Stage, State

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
NUMBERS = st.integers(-(2**31), 2**31)
MESSAGES = st.builds(
    Message,
    id=TEXTS,
    source=TEXTS,
    body=st.binary(),
    enqueued_at=TIMES,
    headers=st.lists(st.tuples(TEXTS, st.binary(max_size=20)), max_size=4).map(tuple),
    key=st.none() | st.binary(max_size=20),
    tenant=st.none() | TEXTS,
    correlation_id=st.none() | TEXTS,
    attempt=NUMBERS,
    priority=NUMBERS,
    expires_at=st.none() | TIMES,
    origin=TEXTS,
)
FAILURES = st.builds(
    Failure,
    type=TEXTS,
    message=TEXTS,
    category=st.sampled_from(Category),
    retryable=st.booleans(),
    at=TIMES,
    attempt=NUMBERS,
    stage=st.sampled_from(Stage),
    code=st.none() | TEXTS,
    stack=TEXTS,
    frames=st.lists(TEXTS, max_size=3).map(tuple),
    worker=TEXTS,
    version=TEXTS,
)
LETTERS = st.builds(
    Letter,
    id=TEXTS,
    message=MESSAGES,
    failures=st.lists(FAILURES, min_size=1, max_size=3).map(tuple),
    state=st.sampled_from(State),
    reason=st.sampled_from(Reason),
    group=TEXTS,
    created_at=TIMES,
    updated_at=TIMES,
    transport=TEXTS,
    next_retry_at=st.none() | TIMES,
    retries=NUMBERS,
    max_retries=NUMBERS,
    resends=NUMBERS,
    replay=st.none() | TEXTS,
    depends_on=st.lists(TEXTS, max_size=3).map(tuple),
    expires_at=st.none() | TIMES,
    owner=st.none() | TEXTS,
    lease_until=st.none() | TIMES,
)


@given(st.lists(LETTERS, max_size=4))
def test_there_and_back_again(letters: list[Letter]) -> None:
    written = b"".join(line_of(letter) for letter in letters)
    assert list(letters_of(written.split(b"\n"))) == letters
