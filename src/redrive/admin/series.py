"""The routes of what happened over time."""

from __future__ import annotations

from datetime import datetime, timedelta

from litestar import Router, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from redrive.access.actors import Role
from redrive.admin.costly import is_long
from redrive.admin.problems import Unreadable
from redrive.config.durations import duration
from redrive.errors import ConfigError
from redrive.forensics.series import By, Counted
from redrive.model import Category
from redrive.service import Asked, Overview, SeriesView, Service

_DAY = "24h"


@get("/series", role=Role.VIEWER, costly=is_long)
async def show_series(
    service: NamedDependency[Service],
    last: FromQuery[str | None] = None,
    since: FromQuery[datetime | None] = None,
    until: FromQuery[datetime | None] = None,
    step: FromQuery[int | None] = None,
    by: FromQuery[By] = By.OUTCOME,
    source: FromQuery[tuple[str, ...] | None] = None,
    category: FromQuery[tuple[Category, ...] | None] = None,
    outcome: FromQuery[tuple[Counted, ...] | None] = None,
) -> SeriesView:
    """Counts over time, of the last day or of what is asked for: `last=7d`, or `since` and `until`. By source or
    category they are of what was buried, unless `outcome` says otherwise."""
    if by is By.GROUP:
        raise Unreadable(
            "by=group: the counts of groups are in /api/groups?spark=24", "one of outcome, source, category"
        )
    for name, at in (("since", since), ("until", until)):
        if at is not None and at.tzinfo is None:
            raise Unreadable(f"{name} has no time zone", "write it as 2026-01-31T12:00:00Z")
    asked = Asked(
        last=None if last is None else span_of(last),
        since=since,
        until=until,
        step=step,
        by=by,
        sources=source,
        categories=category,
        outcomes=outcome,
    )
    return await service.series(asked)


@get("/overview", role=Role.VIEWER, costly=is_long)
async def show_overview(service: NamedDependency[Service], last: FromQuery[str] = _DAY) -> Overview:
    """What is dying now, and how that compares to before. A backend that is away is named, and fails nothing else."""
    return await service.overview(span_of(last))


def span_of(text: str) -> timedelta:
    """The duration of a parameter, as `24h`."""
    try:
        return duration(text)
    except ConfigError as error:
        raise Unreadable(f"last: {error}", "write it as 15m, 24h or 7d") from None


router = Router("/api", route_handlers=[show_series, show_overview], tags=["series"])
