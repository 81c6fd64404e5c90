"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive.config.durations import duration, spoken
from redrive.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("250us", timedelta(microseconds=250)),
        ("250ms", timedelta(milliseconds=250)),
        ("1s", timedelta(seconds=1)),
        ("1.5s", timedelta(seconds=1.5)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1m30s", timedelta(seconds=90)),
        ("0s", timedelta()),
    ],
)
def test_a_duration_is_read_as_it_is_written(text: str, span: timedelta) -> None:
    assert duration(text) == span


def test_a_timedelta_is_a_duration_already() -> None:
    assert duration(timedelta(seconds=3)) == timedelta(seconds=3)


@pytest.mark.parametrize(
    "wrong", ["", "5", "5 s", "s", "-5s", "1e3s", "5sec", "5s ", "1h30", "five", 5, 1.5, None, b"5s"]
)
def test_what_has_no_unit_is_refused_and_the_answer_shows_how_to_write_it(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="'250ms', '5s' or '1m30s'"):
        duration(wrong)


def test_longer_than_time_itself_is_refused_in_our_words() -> None:
    with pytest.raises(ConfigError, match="too long"):
        duration("999999999999999w")


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=7), "7d"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(microseconds=1), "1us"),
    ],
)
def test_a_span_is_spoken_as_people_write_it(span: timedelta, text: str) -> None:
    assert spoken(span) == text
