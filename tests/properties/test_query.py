"""A query is a conjunction, and survives being written down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from redrive.forensics.query import Query, matches
from redrive.model import Category, Letter, State
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START

NAMES = st.sampled_from(["a", "b", "c"])
TIMES = st.datetimes(datetime(2029, 12, 31), datetime(2030, 1, 2), timezones=st.just(UTC))
TEXTS = st.text('aAbß%_\\"', max_size=3)


def _some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.lists(values, max_size=3).map(tuple)


QUERIES = st.builds(
    Query,
    ids=st.none(),
    message_ids=_some(NAMES),
    states=_some(st.sampled_from(State)),
    sources=_some(NAMES),
    categories=_some(st.sampled_from(Category)),
    groups=_some(NAMES),
    tenants=_some(NAMES),
    transports=_some(NAMES),
    error_type=st.none() | NAMES,
    code=st.none() | NAMES,
    since=st.none() | TIMES,
    before=st.none() | TIMES,
    text=st.none() | TEXTS,
    due=st.none() | TIMES,
    lapsed=st.none() | TIMES,
    expired=st.none() | TIMES,
    owner=st.none() | NAMES,
)


@st.composite
def letters(draw: st.DrawFn) -> Letter:
    message = make_message(
        id=draw(NAMES),
        source=draw(NAMES),
        body=draw(st.binary(max_size=5) | TEXTS.map(str.encode)),
        tenant=draw(st.none() | NAMES),
        key=draw(st.none() | st.binary(max_size=2)),
    )
    failure = make_failure(
        type=draw(NAMES), message=draw(TEXTS), code=draw(st.none() | NAMES), category=draw(st.sampled_from(Category))
    )
    return make_letter(
        message,
        failure,
        at=draw(TIMES),
        state=draw(st.sampled_from(State)),
        group=draw(NAMES),
        transport=draw(NAMES),
        next_retry_at=draw(st.none() | TIMES),
        expires_at=draw(st.none() | TIMES),
        owner=draw(st.none() | NAMES),
        lease_until=draw(st.none() | TIMES),
    )


@given(QUERIES, letters())
def test_a_query_selects_what_each_of_its_fields_selects(query: Query, letter: Letter) -> None:
    alone = [Query(**{name: value}) for name, value in asdict(query).items() if value is not None]
    assert matches(query, letter) == all(matches(one, letter) for one in alone)


@given(QUERIES)
def test_a_query_survives_being_written_down(query: Query) -> None:
    assert msgspec.json.decode(msgspec.json.encode(query), type=Query) == query
    assert msgspec.convert(msgspec.to_builtins(query), Query) == query


@given(letters())
def test_every_letter_is_found_by_what_it_is(letter: Letter) -> None:
    query = Query(
        ids=(letter.id,),
        states=(letter.state,),
        sources=(letter.message.source,),
        groups=(letter.group,),
        since=letter.created_at,
        before=letter.created_at + timedelta(microseconds=1),
        text=letter.message.id.upper(),
    )
    assert matches(query, letter)
    assert START.tzinfo is UTC
