"""Counts over time, chosen, filled and judged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from redrive.forensics.series import (
    DAY,
    HOUR,
    MINUTE,
    OTHERS,
    By,
    Count,
    Kept,
    Point,
    SeriesQuery,
    Trend,
    bars,
    buried,
    lines,
    minute_of,
    packed,
    points_of,
    rows_of,
    starts,
    step_for,
    trend_of,
    unpacked,
    window_of,
)
from redrive.testing.builders import make_letter
from redrive.testing.clock import START

NOW = int(START.timestamp())


@pytest.mark.parametrize(
    ("hours", "step"), [(0.25, MINUTE), (1, MINUTE), (3, MINUTE), (4, HOUR), (24, HOUR), (168, HOUR), (720, DAY)]
)
def test_a_chart_has_the_shortest_step_that_gives_it_no_more_points_than_it_can_show(hours: float, step: int) -> None:
    assert step_for(START - timedelta(hours=hours), START, START, Kept()) == step


def test_a_short_time_long_ago_has_the_step_that_is_still_kept() -> None:
    for days, step in ((1, MINUTE), (10, HOUR), (100, DAY), (9999, DAY)):
        since = START - timedelta(days=days)
        assert step_for(since, since + timedelta(hours=1), START, Kept()) == step


def test_buckets_begin_where_the_first_moment_is_in_and_end_before_the_last() -> None:
    assert starts(3601, 7200, HOUR) == [3600]
    assert starts(3601, 7201, HOUR) == [3600, 7200]


def test_gaps_are_zeros_and_what_is_too_much_is_one_line() -> None:
    points = [Point(60, name, number) for number, name in enumerate("abcd", start=1)] + [Point(180, "d", 1)]
    assert [(line.name, line.counts, line.total) for line in lines(points, [60, 120, 180], most=2)] == [
        ("d", [4, 0, 1], 5),
        ("c", [3, 0, 0], 3),
        (OTHERS, [3, 0, 0], 3),
    ]
    assert [line.name for line in lines([], [60], most=2, always=["x"])] == ["x"]


def test_letters_of_a_batch_are_counted_in_the_minute_of_each() -> None:
    second, east = timedelta(seconds=1), timezone(timedelta(hours=9, minutes=30))
    first = START.replace(second=0, microsecond=0)
    times = [
        *(first, first + 59.999999 * second, first + 60 * second, first, first - second, first.astimezone(east)),
        *(datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)),
        *(datetime.min.replace(tzinfo=east), datetime(1969, 12, 31, tzinfo=UTC), first.replace(tzinfo=None), first),
    ]
    found = {count.at: count.number for count in buried([make_letter(at=at, group="g") for at in times])}
    expected = [minute_of(at) for at in times]
    assert found == {minute: expected.count(minute) for minute in expected}


def test_a_count_is_in_its_minute_its_hour_and_its_day_once_and_in_its_group() -> None:
    rows = rows_of(
        [Count(NOW, "buried", "mail", "network", "g", 2), Count(NOW + 60, "buried", "mail", "network", "g", 3)]
    )
    for step in (HOUR, DAY):
        asked = SeriesQuery(step=step, since=0, until=NOW + DAY)
        assert list(points_of(rows, asked).values()) == [5]
        assert list(
            points_of(rows, SeriesQuery(step=step, since=0, until=NOW + DAY, by=By.GROUP, groups=("g",))).values()
        ) == [5]
    assert sorted(points_of(rows, SeriesQuery(step=MINUTE, since=0, until=NOW + DAY)).values()) == [2, 3]


def test_counts_are_read_as_they_were_packed() -> None:
    counts = [Count(NOW, "buried", "mail", "network", "g", 2)]
    assert unpacked(packed(counts)) == counts


@pytest.mark.parametrize(
    ("last", "width", "step"), [("24h", HOUR, HOUR), ("1h", 120, MINUTE), ("30d", 30 * HOUR, HOUR)]
)
def test_a_sparkline_ends_now(last: str, width: int, step: int) -> None:
    from redrive.config.durations import duration

    window = window_of(duration(last), 24, START)
    assert (window.width, window.step, window.number) == (width, step, 24)
    assert window.start <= NOW - 23 * width
    assert NOW < window.end <= NOW + step
    assert window.spark([(window.start, 1), (window.end - step, 2), (window.end, 9), (window.start - 1, 9)]) == [
        1,
        *[0] * 22,
        2,
    ]


@pytest.mark.parametrize(
    ("spark", "trend"),
    [
        ([0, 0, 0, 0, 1, 2, 3, 4], Trend.GROWING),
        ([3, 3, 3, 3, 3, 3, 3, 3], Trend.STEADY),
        ([9, 9, 9, 9, 0, 1, 0, 0], Trend.QUIET),
        ([0, 0, 0, 0, 0, 0, 0, 1], Trend.STEADY),
        ([0] * 8, Trend.QUIET),
    ],
)
def test_a_trend_is_told_by_the_sparkline(spark: list[int], trend: Trend) -> None:
    assert trend_of(spark, is_new=False, is_regressed=False) is trend
    assert trend_of(spark, is_new=True, is_regressed=False) is Trend.NEW
    assert trend_of(spark, is_new=True, is_regressed=True) is Trend.REGRESSED


def test_bars_are_as_high_as_what_they_stand_for() -> None:
    assert bars([0, 1, 4, 8]) == "·▁▄█"
    assert bars([]) == ""
    assert bars([0, 0]) == "··"
