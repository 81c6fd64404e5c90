"""Batches without repeats."""

from __future__ import annotations

from redrive.stores.rounds import rounds


def initial(word: str) -> str:
    return word[0]


def test_what_has_no_repeats_is_one_round() -> None:
    words = ["a1", "b1", "c1"]
    assert rounds(words, initial) == [words]


def test_a_repeat_comes_in_a_later_round_and_nothing_is_lost() -> None:
    assert rounds(["a1", "b1", "a2", "c1", "a3", "b2"], initial) == [["a1", "b1", "c1"], ["a2", "b2"], ["a3"]]


def test_of_nothing_there_is_nothing_to_write() -> None:
    assert rounds([], initial) == []
