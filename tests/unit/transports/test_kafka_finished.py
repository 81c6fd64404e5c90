"""What is finished above a committed offset, written beside it and read again."""

from __future__ import annotations

import base64
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.transports.kafka.finished import LONGEST, NOTHING, OPEN, finished_in, is_open, metadata_of, runs_of

AHEAD = st.sets(st.integers(1, 400), max_size=300)


@given(st.integers(0, 2**62), AHEAD)
def test_what_is_written_is_read_again(committed: int, ahead: set[int]) -> None:
    offsets = sorted(committed + number for number in ahead)
    text = metadata_of(committed, runs_of(offsets))
    found = finished_in(text, committed)
    assert is_open(text)
    assert [offset for offset in range(committed, committed + 402) if offset in found] == offsets
    assert found.end == (offsets[-1] + 1 if offsets else 0)


@given(AHEAD, st.integers(30, 200))
def test_what_has_no_room_is_left_out_from_the_far_end_on(ahead: set[int], longest: int) -> None:
    offsets = sorted(1000 + number for number in ahead)
    text = metadata_of(1000, runs_of(offsets), longest)
    found = finished_in(text, 1000)
    kept = [offset for offset in offsets if offset in found]
    assert len(text) <= longest
    assert kept == offsets[: len(kept)]


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_as_much_as_a_partition_may_have_open_has_room(share: float) -> None:
    rng = Random(7)
    offsets = [10**12 + number for number in range(1, 6_500) if rng.random() < share]
    text = metadata_of(10**12, runs_of(offsets))
    found = finished_in(text, 10**12)
    assert len(text) <= LONGEST
    assert all(offset in found for offset in offsets)


def test_offsets_far_apart_are_cut_and_not_refused() -> None:
    rng = Random(7)
    offsets = sorted(rng.sample(range(1, 2**48), 5_000))
    text = metadata_of(0, runs_of(offsets))
    found = finished_in(text, 0)
    assert len(text) <= LONGEST
    assert sum(offset in found for offset in offsets) > 300


def test_without_any_room_it_says_that_something_is_open_or_nothing() -> None:
    assert metadata_of(5, [(6, 7)], len(OPEN)) == OPEN
    assert metadata_of(5, [(6, 7)], 0) == ""
    assert metadata_of(5, []) == OPEN


def _as_if_ours(packed: bytes) -> str:
    return f"{OPEN}; finished={base64.b85encode(zlib.compress(packed)).decode()}"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        OPEN,
        "somebody else's",
        f"{OPEN}; finished=",
        f"{OPEN}; finished=\x00",
        f"{OPEN}; finished=é",
        metadata_of(100, [(101, 150)])[:-3],
        metadata_of(99, [(101, 150)]),  # it stood beside another offset
        _as_if_ours(b""),
        _as_if_ours(b"\x64\x01"),
        _as_if_ours(b"\x64\x01\x00"),
        _as_if_ours(b"\x64\x01\x80"),
        _as_if_ours(b"\xff" * 40),
        _as_if_ours(b"\x64" + b"\x01\x01" * (1 << 20)),
    ],
)
def test_what_is_not_ours_or_damaged_says_nothing(text: str | None) -> None:
    assert finished_in(text, 100).runs == NOTHING.runs == []


@given(st.text(max_size=80))
def test_whatever_it_says_reading_it_never_fails(text: str) -> None:
    finished_in(text, 100), finished_in(f"{OPEN}; finished={text}", 100)
