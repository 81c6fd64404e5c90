"""What died, was retried and was resolved over time, as counts by minute, hour and day. Pure.

A store counts as letters come, by minute (`Count`). Rolled up, each count stands in a row of its minute, its hour and
its day: once by source, category and outcome, and once by group (`rows_of`). `points_of` is the reference: every store
answers a `SeriesQuery` as it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec import Struct

from redrive.model import WAITING, Letter

MINUTE, HOUR, DAY = 60, 3600, 86_400
STEPS = (MINUTE, HOUR, DAY)
"""The lengths of buckets that are kept, in seconds."""
MOST_POINTS = 180
"""So many a chart has, if nobody asks for another step."""
OTHERS = "(others)"
_MINUTE = timedelta(minutes=1)
_NEVER, _LAST = datetime.min.replace(tzinfo=UTC), int(datetime(9999, 12, 31, 23, 59, tzinfo=UTC).timestamp())


class Counted(StrEnum):
    """What is counted over time."""

    BURIED = "buried"  # a message died: it became a letter, or rejoined its own
    RETRIED = "retried"  # an attempt failed, and another follows
    RESOLVED = "resolved"  # the message of a letter succeeded after all
    AGAIN = "again"  # a letter that was sent back died again; it is one of the buried, too


SHOWN = (Counted.BURIED, Counted.RETRIED, Counted.RESOLVED)


class Count(Struct, frozen=True, array_like=True, gc=False):
    """So many of a kind in one minute."""

    at: int  # the start of the minute, in seconds since 1970
    outcome: str
    source: str
    category: str
    group: str  # empty: it has none
    number: int


class By(StrEnum):
    """What points are told apart by."""

    OUTCOME = "outcome"
    SOURCE = "source"
    CATEGORY = "category"
    GROUP = "group"


class SeriesQuery(Struct, frozen=True, kw_only=True):
    """Which counts: buckets of that length that begin in [since, until), summed up by one thing.

    groups   by GROUP these, and no others; their counts are of what was buried
    """

    step: int
    since: int
    until: int
    by: By = By.OUTCOME
    groups: tuple[str, ...] = ()
    sources: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    outcomes: tuple[str, ...] | None = None


class Point(Struct, frozen=True, gc=False):
    """So many of that name in the bucket that begins then."""

    at: int
    name: str
    number: int


Row: TypeAlias = tuple[int, int, str, str, str, str]
"""Of a bucket: step, start, group, source, category, outcome. A row of a group has no category; any other no group."""

_decode = msgspec.msgpack.Decoder(list[Count]).decode
packed = msgspec.msgpack.Encoder().encode
"""Counts as bytes, for a store that sums them up later."""


def unpacked(raw: bytes) -> list[Count]:
    """What was `packed`."""
    return _decode(raw)


# -- counting ----------------------------------------------------------------------------------------------------------


def minute_of(at: datetime) -> int:
    """The start of its minute, in seconds since 1970."""
    return floored(int(at.timestamp()), MINUTE)


def _minutes(times: Sequence[datetime]) -> Iterator[int]:
    """The minute of each. Those of a batch follow one another within it: to compare costs a third of what to count
    seconds does."""
    minute, begins, ends = 0, _NEVER, _NEVER
    for at in times:
        if at.tzinfo is None or not begins <= at < ends:
            minute = minute_of(at)
            begins = datetime.fromtimestamp(minute, UTC) if 0 <= minute < _LAST else _NEVER
            ends = begins if begins is _NEVER else begins + _MINUTE
        yield minute


def floored(seconds: int, step: int) -> int:
    """The start of the bucket that it is in."""
    return seconds - seconds % step


def buried(letters: Iterable[Letter], again: Iterable[Letter] = ()) -> list[Count]:
    """The counts of letters that were recorded, and of known ones that died again. A letter that only waits in the
    store is not dead, and is not counted."""
    repeats = [letter for letter in again if letter.reason not in WAITING]
    dead = [letter for letter in letters if letter.reason not in WAITING] + repeats
    minutes = _minutes([letter.created_at for letter in dead])
    kinds = Counter(
        [
            (minute, letter.message.source, str(letter.failures[-1].category), letter.group)
            for minute, letter in zip(minutes, dead, strict=True)
        ]
    )
    counts = [Count(at, "buried", _text(source), kind, group, n) for (at, source, kind, group), n in kinds.items()]
    returned = [(letter.created_at, letter.message.source, letter.category) for letter in repeats if letter.resends]
    return counts + _counts(Counted.AGAIN, returned)


def resolved(letters: Iterable[tuple[str, str]], at: datetime) -> list[Count]:
    """The counts of letters, by source and category, that were resolved then."""
    return _counts(Counted.RESOLVED, [(at, source, category) for source, category in letters])


def _counts(outcome: Counted, facts: Iterable[tuple[datetime, str, str]]) -> list[Count]:
    kinds = Counter([(minute_of(at), source, str(category)) for at, source, category in facts])
    return [Count(at, outcome.value, _text(source), kind, "", n) for (at, source, kind), n in kinds.items()]


def retried(facts: Mapping[tuple[int, str, str], int]) -> list[Count]:
    """The counts of attempts that failed and are followed by another, by minute, source and category."""
    return [Count(at, "retried", _text(source), kind, "", n) for (at, source, kind), n in facts.items()]


def _text(name: str) -> str:
    """A name as every store can hold it: half a surrogate pair is in none."""
    return name if name.isascii() else name.encode("utf-8", "replace").decode()


# -- rolling up --------------------------------------------------------------------------------------------------------


def rows_of(counts: Iterable[Count]) -> Counter[Row]:
    """The counts by minute, hour and day: of their source, category and outcome, and of their group."""
    rows: Counter[Row] = Counter()
    for count in counts:
        for step in STEPS:
            at = floored(count.at, step)
            rows[step, at, "", count.source, count.category, count.outcome] += count.number
            if count.group:
                rows[step, at, count.group, count.source, "", count.outcome] += count.number
    return rows


def points_of(rows: Mapping[Row, int], query: SeriesQuery) -> Counter[tuple[int, str]]:
    """The numbers of what the query selects, by the start of their bucket and their name."""
    points: Counter[tuple[int, str]] = Counter()
    for (step, at, group, source, category, outcome), number in rows.items():
        if step != query.step or not query.since <= at < query.until:
            continue
        if query.by is By.GROUP:
            if group and group in query.groups and _among(source, query.sources):
                points[at, group] += number
        elif not group and _is_selected(query, source, category, outcome):
            points[at, {By.OUTCOME: outcome, By.SOURCE: source}.get(query.by, category)] += number
    return points


def _is_selected(query: SeriesQuery, source: str, category: str, outcome: str) -> bool:
    return _among(source, query.sources) and _among(category, query.categories) and _among(outcome, query.outcomes)


def _among(value: str, wanted: Sequence[str] | None) -> bool:
    return wanted is None or value in wanted


def told(points: Mapping[tuple[int, str], int]) -> list[Point]:
    """The points in order of time and name."""
    return [Point(at, name, number) for (at, name), number in sorted(points.items()) if number]


# -- showing -----------------------------------------------------------------------------------------------------------


class Line(Struct, frozen=True):
    """The counts of one name, in the order of the buckets."""

    name: str
    counts: list[int]
    total: int


class Kept(Struct, frozen=True, kw_only=True):
    """How long buckets are kept."""

    minutes: timedelta = timedelta(days=2)
    hours: timedelta = timedelta(days=60)
    days: timedelta = timedelta(days=730)

    def of(self, step: int) -> timedelta:
        return {MINUTE: self.minutes, HOUR: self.hours}.get(step, self.days)


def step_for(since: datetime, until: datetime, now: datetime, kept: Kept) -> int:
    """The shortest step that is kept for so long, and gives no more points than a chart can show."""
    span = (until - since).total_seconds()
    for step in STEPS:
        if span / step <= MOST_POINTS and now - since <= kept.of(step):
            return step
    return DAY


def starts(since: int, until: int, step: int) -> list[int]:
    """The start of each bucket from the one that `since` is in to the last before `until`."""
    return list(range(floored(since, step), until, step))


def lines(points: Iterable[Point], at: Sequence[int], *, most: int, always: Sequence[str] = ()) -> list[Line]:
    """A line for each name, with zeros where nothing was counted, the largest first; what is more than so many is
    summed up as one. `always`: these have a line in any case."""
    places = {start: place for place, start in enumerate(at)}
    counts: dict[str, list[int]] = {name: [0] * len(at) for name in always}
    for point in points:
        counts.setdefault(point.name, [0] * len(at))[places[point.at]] += point.number
    found = [Line(name, numbers, sum(numbers)) for name, numbers in counts.items()]
    found.sort(key=lambda line: (-line.total, line.name))
    if len(found) <= most:
        return found
    rest = [sum(column) for column in zip(*(line.counts for line in found[most:]), strict=True)]
    return [*found[:most], Line(OTHERS, rest, sum(rest))]


class Trend(StrEnum):
    """How a group goes on, in the last day."""

    NEW = "new"  # its first letter is of this day
    GROWING = "growing"  # more in the second half of it than in the first
    STEADY = "steady"
    QUIET = "quiet"  # none in the last quarter of it
    REGRESSED = "regressed"  # it was fixed, and came back


class Window(Struct, frozen=True):
    """The buckets of a sparkline: so many of that width from that start."""

    start: int
    width: int
    number: int
    step: int  # of the counts that they are summed up from

    @property
    def end(self) -> int:
        return self.start + self.width * self.number

    def spark(self, points: Iterable[tuple[int, int]]) -> list[int]:
        """The numbers of counts, given with the start of each, by bucket."""
        found = [0] * self.number
        for at, number in points:
            if self.start <= at < self.end:
                found[(at - self.start) // self.width] += number
        return found


def window_of(last: timedelta, number: int, now: datetime) -> Window:
    """A sparkline of so many buckets that ends now."""
    width = max(int(last.total_seconds()) // number, MINUTE)
    step = max((step for step in STEPS if step <= width and width % step <= width / 8), default=MINUTE)
    width = floored(width, step)
    end = floored(int(now.timestamp()), step) + step
    return Window(end - width * number, width, number, step)


_GROWTH, _FEW = 1.5, 3


def trend_window(now: datetime) -> Window:
    """The time that a trend is of, whatever time a sparkline beside it shows: the hours of the last day."""
    return window_of(timedelta(days=1), 24, now)


def trend_of(spark: Sequence[int], *, is_new: bool, is_regressed: bool) -> Trend:
    """How a group goes on, by the counts of `trend_window`."""
    half, quarter = len(spark) // 2, max(len(spark) // 4, 1)
    early, late = sum(spark[:half]), sum(spark[half:])
    if is_regressed:
        return Trend.REGRESSED
    if is_new:
        return Trend.NEW
    if not sum(spark[-quarter:]):
        return Trend.QUIET
    return Trend.GROWING if late > _GROWTH * early and late - early >= _FEW else Trend.STEADY


_BARS = "▁▂▃▄▅▆▇█"


def bars(counts: Sequence[int]) -> str:
    """A sparkline in characters; nothing is a dot."""
    top = max(counts, default=0)
    return "".join("·" if not n else _BARS[(n * len(_BARS) - 1) // top] for n in counts)
