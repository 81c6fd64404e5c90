"""What is spoken is read back, to the microsecond."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from redrive.config.durations import duration, spoken
from redrive.errors import ConfigError


@given(st.timedeltas(min_value=timedelta()))
def test_what_is_spoken_is_read_back(span: timedelta) -> None:
    assert duration(spoken(span)) == span


@given(st.text() | st.from_regex(r"(\d+(\.\d+)?(us|ms|s|m|h|d|w)?)+", fullmatch=True))
def test_any_text_is_a_duration_or_refused_in_our_words(text: str) -> None:
    with suppress(ConfigError):
        assert duration(text) >= timedelta()
