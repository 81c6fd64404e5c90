"""What happened over time, and the overview of it all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.alerts.incidents import Incident, IncidentState
from redrive.answers import Answers, ask_each
from redrive.errors import UsageError
from redrive.flow.replay_document import Replay, ReplayState
from redrive.forensics.marks import GroupState
from redrive.forensics.query import Query, shown_query
from redrive.forensics.series import (
    HOUR,
    MINUTE,
    SHOWN,
    STEPS,
    By,
    Counted,
    Kept,
    Line,
    SeriesQuery,
    Trend,
    Window,
    lines,
    starts,
    step_for,
    trend_of,
    trend_window,
    window_of,
)
from redrive.forensics.standing import Standing, standing_of
from redrive.model import OPEN
from redrive.service.groups import GroupView, OfGroups
from redrive.stores.base import EntryStatus, GroupOrder

LONGEST = timedelta(days=2 * 366)
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
SPARK, MOST_SPARK = 24, 200
_MOST_LINES, _MOST_POINTS, _TOP = 12, 3000, 8
_RUNNING = (ReplayState.RUNNING, ReplayState.PAUSED)
_PATIENCE = 4.0  # seconds: less than whoever asks for everything at once waits
_DAY = timedelta(days=1)


class SeriesView(Struct, frozen=True, kw_only=True):
    """Counts over time: a line for each name, with a number for each bucket."""

    since: datetime
    until: datetime
    step: int  # seconds
    by: str
    at: list[int]  # the start of each bucket, in seconds since 1970
    lines: list[Line]
    note: str = ""  # why there is less than one would think


class Asked(Struct, frozen=True, kw_only=True):
    """Which counts over time are asked for."""

    last: timedelta | None = None
    since: datetime | None = None
    until: datetime | None = None
    step: int | None = None
    by: By = By.OUTCOME
    sources: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    outcomes: tuple[Counted, ...] | None = None


class Change(Struct, frozen=True):
    """How many in this time, and in as long a time before it."""

    now: int
    before: int


class TrendView(GroupView, frozen=True, kw_only=True):
    """A group, and how it goes on. `spark`: its letters in buckets of one length, the last of which ends now."""

    spark: list[int] | None = None  # None: it was not asked for
    trend: Trend  # of the last day, whatever the sparkline shows
    standing: Standing  # the one word for a list


class Oldest(Struct, frozen=True):
    """The letter that has waited the longest."""

    id: str
    source: str
    created_at: datetime


class Going(Struct, frozen=True):
    """A replay that runs or is paused, and what became of its letters."""

    replay: Replay
    entries: dict[EntryStatus, int]


class BackendView(Struct, frozen=True):
    """The store or a transport: whether it could do its work now."""

    name: str
    ok: bool
    why: str = ""


class Overview(Struct, frozen=True, kw_only=True):
    """What is dying now. What a backend that is away cannot tell is missing, and the backend is named."""

    at: datetime
    last: float  # seconds
    totals: dict[str, Change]
    waiting: int | None
    oldest: Oldest | None
    retry_success: float | None  # of letters that came back: how many succeeded
    groups: list[TrendView]
    replays: list[Going]
    incidents: list[Incident]
    backends: list[BackendView]
    note: str = ""


class OfSeries(OfGroups):
    """What can be asked of the past."""

    @property
    def _kept(self) -> Kept:
        kept = self.app.settings.series
        return Kept(minutes=kept.minutes, hours=kept.hours, days=kept.days)

    @property
    def _series_note(self) -> str:
        """Why there are no counts for whoever asks; empty, if there are."""
        return getattr(self.app.store.series, "note", "")

    async def series(self, asked: Asked) -> SeriesView:
        """Counts over time. By source or category they are of what was buried, unless it is said."""
        since, until, step = self._span(asked, self.app.clock.now())
        points = (until - since) // step
        if points > _MOST_POINTS:
            raise UsageError(f"that is {points:,} points, and {_MOST_POINTS:,} are the most: take a longer step")
        at = starts(since, until, step)
        default = SHOWN if asked.by is By.OUTCOME else (Counted.BURIED,)
        outcomes = asked.outcomes or default
        found = await self.app.store.series.read(
            SeriesQuery(
                step=step,
                since=at[0],
                until=until,
                by=asked.by,
                sources=asked.sources,
                categories=asked.categories,
                outcomes=tuple(outcome.value for outcome in outcomes),
            )
        )
        always = [outcome.value for outcome in outcomes] if asked.by is By.OUTCOME else []
        return SeriesView(
            since=_moment(at[0]),
            until=_moment(until),
            step=step,
            by=asked.by.value,
            at=at,
            lines=lines(found, at, most=_MOST_LINES, always=always),
            note=self._series_note or self._forgotten(at[0], step),
        )

    async def trends(
        self,
        query: Query,
        *,
        last: timedelta = _DAY,
        spark: int | None = SPARK,
        limit: int = 50,
        with_muted: bool = True,
        order: GroupOrder = GroupOrder.LETTERS,
        skip: int = 0,
    ) -> list[TrendView]:
        """The groups as `groups` gives them, each with how it goes on, and a sparkline of so many buckets of the `last`
        time; None: without."""
        groups = await self.groups(query, limit=limit, with_muted=with_muted, order=order, skip=skip)
        now, ids = self.app.clock.now(), tuple(group.id for group in groups)
        day = trend_window(now)
        window = day if spark is None else window_of(_checked(last), spark, now)
        trends = await self._counted(ids, day)
        shown = trends if window == day else await self._counted(ids, window)
        return [
            self._trend(group, trends[group.id], day, None if spark is None else shown[group.id]) for group in groups
        ]

    async def trend(self, id: str) -> TrendView:
        """The group of that id, or of the only id that begins so, and how it goes on; without a sparkline."""
        group, day = await self.group(id), trend_window(self.app.clock.now())
        return self._trend(group, (await self._counted((group.id,), day))[group.id], day, None)

    async def _counted(self, ids: tuple[str, ...], window: Window) -> dict[str, list[int]]:
        """The counts of each group in that window."""
        asked = SeriesQuery(step=window.step, since=window.start, until=window.end, by=By.GROUP, groups=ids)
        numbers: dict[str, list[tuple[int, int]]] = {id: [] for id in ids}
        for point in await self.app.store.series.read(asked) if ids else ():
            numbers[point.name].append((point.at, point.number))
        return {id: window.spark(points) for id, points in numbers.items()}

    def _trend(self, group: GroupView, counts: list[int], day: Window, spark: list[int] | None) -> TrendView:
        is_new = group.first_at.timestamp() >= day.start
        trend = trend_of(counts, is_new=is_new, is_regressed=group.state is GroupState.REGRESSED)
        return TrendView(**_fields(group), spark=spark, trend=trend, standing=standing_of(group.state, trend))

    async def overview(self, last: timedelta) -> Overview:
        """Everything that a person who is woken looks at first. A backend that does not answer is named, and what it
        would have told is missing."""
        last, now = _checked(last), self.app.clock.now()
        found: Answers[Any] = await ask_each(
            {
                "totals": lambda: self._totals(last, now),
                "waiting": lambda: self.app.store.letters.count(Query(states=OPEN)),
                "oldest": self._oldest,
                "groups": lambda: self.trends(Query(states=OPEN), last=last, limit=_TOP, with_muted=False),
                "replays": self._going,
                "incidents": self._open_incidents,
                "backends": self._backends,
            },
            masked=self.redactor.text,
        )
        told: dict[str, Any] = dict(found.found)
        totals = told.get("totals", {})
        backends: list[BackendView] = told.get("backends", [])
        if found.unanswered and all(backend.ok for backend in backends):
            why = found.unanswered[0].why
            backends = [BackendView("store", False, why), *(view for view in backends if view.name != "store")]
        return Overview(
            at=now,
            last=last.total_seconds(),
            totals={outcome.value: totals.get(outcome.value, Change(0, 0)) for outcome in SHOWN},
            waiting=told.get("waiting"),
            oldest=told.get("oldest"),
            retry_success=_success(totals),
            groups=told.get("groups", []),
            replays=told.get("replays", []),
            incidents=told.get("incidents", []),
            backends=backends,
            note=self._series_note,
        )

    async def _totals(self, last: timedelta, now: datetime) -> dict[str, Change]:
        """How many of each outcome in this time, and in as long a time before. They are the sums of what `series` gives
        for it: a chart and the numbers above it tell the same."""
        since, until, step = self._span(Asked(last=last), now)
        at = starts(since, until, step)
        before = at[0] - step * len(at)
        points = await self.app.store.series.read(SeriesQuery(step=step, since=before, until=until))
        sums: dict[str, list[int]] = {outcome.value: [0, 0] for outcome in Counted}
        for point in points:
            sums[point.name][point.at < at[0]] += point.number
        return {name: Change(*numbers) for name, numbers in sums.items()}

    async def _oldest(self) -> Oldest | None:
        page = await self.app.store.letters.search(Query(states=OPEN), limit=1, oldest_first=True)
        return next((Oldest(letter.id, letter.message.source, letter.created_at) for letter in page.letters), None)

    async def _going(self) -> list[Going]:
        going = [replay for replay in await self.replays.list(50) if replay.state in _RUNNING]
        return [Going(self._masked(replay), await self.app.store.ledger.tally(replay.id)) for replay in going]

    def _masked(self, replay: Replay) -> Replay:
        """The replay as it is shown: errors of letters and of brokers may hold secrets, and so may reasons and what it
        was selected by."""
        text = self.redactor.text
        replay = replace(
            replay,
            reason=text(replay.reason),
            query=shown_query(replay.query, text),
            selects=None if replay.selects is None else shown_query(replay.selects, text),
            waits=tuple(replace(wait, why=text(wait.why)) for wait in replay.waits),
            awaits=text(replay.awaits),
        )
        if replay.paused is None:
            return replay
        cases = tuple(replace(case, before=text(case.before), now=text(case.now)) for case in replay.paused.compared)
        paused = replace(replay.paused, why=text(replay.paused.why), compared=cases)
        return replace(replay, paused=paused)

    async def _open_incidents(self) -> list[Incident]:
        return await self.incidents.list(states=(IncidentState.OPEN, IncidentState.ACKNOWLEDGED), limit=100)

    async def _backends(self) -> list[BackendView]:
        checked = await self.check_backends()
        return [BackendView(name, said == "ok", "" if said == "ok" else said) for name, said in checked.items()]

    async def check_backends(self) -> dict[str, str]:
        """What the store and every transport say of themselves: `ok`, or why not. All are asked at once."""
        app = self.app

        def checked(name: str) -> Callable[[], Awaitable[None]]:
            return lambda: app.transport(name).check()

        backends: dict[str, Callable[[], Awaitable[None]]] = {"store": lambda: app.store.check()}
        backends |= {f"transports.{name}": checked(name) for name in app.transport_names}
        answers = await ask_each(backends, patience=_PATIENCE, masked=self.redactor.text)
        return dict.fromkeys(backends, "ok") | {silent.backend: silent.why for silent in answers.unanswered}

    def _span(self, asked: Asked, now: datetime) -> tuple[int, int, int]:
        """From when to when, in steps of how many seconds."""
        if asked.last is not None and (asked.since is not None or asked.until is not None):
            raise UsageError("give `last`, or `since` and `until`: both say from when")
        until = asked.until or now
        _check_date(until)
        since = asked.since or until - _checked(timedelta(days=1) if asked.last is None else asked.last)
        _check_date(since)
        if since >= until:
            raise UsageError("`since` is not before `until`: nothing is in between")
        _checked(until - since)
        if asked.step is not None and asked.step not in STEPS:
            raise UsageError(f"step={asked.step}: counts are kept by 60, 3600 and 86400 seconds")
        step = asked.step or step_for(since, until, now, self._kept)
        return int(since.timestamp()), int(until.timestamp()) + 1, step

    def _forgotten(self, since: int, step: int) -> str:
        kept = self._kept.of(step)
        if _moment(since + step) >= self.app.clock.now() - kept:
            return ""
        name = {MINUTE: "minute", HOUR: "hour"}.get(step, "day")
        return f"counts by {name} are kept for {kept.days} days: what is older is not in it"


def _fields(group: GroupView) -> dict[str, Any]:
    return {name: getattr(group, name) for name in GroupView.__struct_fields__}


def _success(totals: dict[str, Change]) -> float | None:
    """Of the letters that came back in this time: how many succeeded; None: none did."""
    succeeded = totals[Counted.RESOLVED].now if totals else 0
    came = succeeded + (totals[Counted.AGAIN].now if totals else 0)
    return succeeded / came if came else None


def _checked(last: timedelta) -> timedelta:
    if not timedelta(minutes=1) <= last <= LONGEST:
        raise UsageError(f"counts are shown for one minute at least, and {LONGEST.days} days at most")
    return last


def _check_date(at: datetime) -> None:
    """Raise UsageError for a time near one of the ends of the calendar: nothing can be counted on from there."""
    if not _FIRST <= at <= _LAST:
        raise UsageError(f"{at:%Y-%m-%d}: counts are of {_FIRST:%Y} to {_LAST:%Y}")


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
