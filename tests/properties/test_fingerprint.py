"""What varies in a message never matters, and normalising twice is normalising once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.forensics.fingerprint import normalise, stack_text

words = st.sampled_from(["order", "of", "customer", "is", "unknown", "failed:", "(see", "log)", "at", "can't"])
around = st.lists(words, max_size=5).map(" ".join)
hexes = st.text("0123456789abcdef", min_size=8, max_size=40)
addresses = st.builds(
    "{}@{}.{}".format,
    st.from_regex(r"[a-z][a-z0-9.+_-]{0,20}[a-z]", fullmatch=True),
    st.from_regex(r"[a-z]{1,10}", fullmatch=True),
    st.sampled_from(["org", "com", "co.uk"]),
)
moments = st.datetimes().map(lambda moment: moment.isoformat())
varying = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
    st.uuids().map(str),
    hexes,
    st.integers(min_value=0).map(hex),
    st.ip_addresses().map(str),
    addresses,
    moments,
)
fiddly = st.text(st.sampled_from("ab09 -+.,:;/@#'\"`\\?=_<>()[]%\n~éx"), max_size=600)


@given(st.text(max_size=1500) | fiddly)
def test_normalising_twice_is_normalising_once(message: str) -> None:
    once = normalise(message)
    assert normalise(once) == once
    assert len(once) <= 500


@given(around, varying, varying, around)
def test_what_varies_does_not_matter(before: str, one: str, other: str, after: str) -> None:
    assert normalise(f"{before} {one} {after}") == normalise(f"{before} {other} {after}")


@given(around, around)
def test_other_words_are_another_message(one: str, other: str) -> None:
    assert (normalise(one) == normalise(other)) is (one == other)


@given(st.text(max_size=300), st.integers(0, 200))
def test_a_stack_is_text_within_its_limit(message: str, limit: int) -> None:
    text = stack_text(ValueError(message), limit)
    assert len(text) <= limit
    text.encode()
