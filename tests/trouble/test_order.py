"""The judge of order is judged: what it must let pass, and what it must not."""

from __future__ import annotations

import pytest

from tests.trouble.order import Entry, breaches


def log_of(text: str) -> list[Entry]:
    """`x1b x1d`: owner x begins 1, and has done it; `-` is dead."""
    words = {"b": "begun", "d": "done", "-": "dead"}
    return [Entry(word[0], "key", int(word[1:-1]), words[word[-1]]) for word in text.split()]


@pytest.mark.parametrize(
    "fine",
    [
        "x1b x1d x2b x2d",
        "x1b x1b x1d x2b x2d",  # a retry
        "x1b x1- x1b x1- x2b x2d",  # dead, and the DLQ did not take it at first
        "x1b x1d x2b x2d y1b y1d y2b y2d y3b y3d",  # lost, and begun again at a committed place
        "x1b x1d x2b y2b x2d y2d",  # taken away while it ran
    ],
)
def test_what_is_in_order_passes(fine: str) -> None:
    assert breaches(log_of(fine)) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("x1b x2b x1d x2d", "2 was begun before 1 was handled"),
        ("x2b x2d x1b x1d", "2 was begun before 1 was handled"),
        ("x1b x1d x2b x2d x1b x1d", "1 came after 2 to the same owner"),
        ("x1b x1d x1b x1d", "1 was begun again by who had done it"),
        ("x1b x1d y2b y3b y2d", "3 was begun before 2 was handled"),
    ],
)
def test_what_is_not_is_named(wrong: str, says: str) -> None:
    assert any(says in breach for breach in breaches(log_of(wrong)))
