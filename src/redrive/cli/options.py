"""What commands share: the filters that make a Query, --json, durations, times and rates."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from msgspec.structs import replace

from redrive.cli.completing import a_group, a_source
from redrive.config.durations import duration
from redrive.errors import ConfigError
from redrive.flow.guard import Guard
from redrive.forensics.query import Query
from redrive.model import Category, State

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")
_PER = {"s": 1, "m": 60, "h": 3600, None: 1}


def span(value: str) -> timedelta:
    """A duration: `90s`, `2h`, `7d`."""
    try:
        return duration(value)
    except (ConfigError, OverflowError) as error:
        raise click.BadParameter(str(error)) from error


def moment(value: str) -> datetime:
    """An ISO 8601 time; UTC where it has no offset."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a time: write 2026-03-01, or 2026-03-01T14:30:00+01:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def rate(value: str) -> float:
    """Letters a second: `50`, `50/s`, `3000/m`."""
    match = _RATE.fullmatch(value)
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{value!r} is not a rate: write 50/s, 3000/m, or 50 for 50 a second")
    return float(match[1]) / _PER[match[2]]


def share(value: str) -> float:
    """A share: `10%`."""
    number = value.removesuffix("%")
    try:
        found = float(number) / 100
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise click.BadParameter(f"{value!r} is not a share: write 10%, from 0% to 100%")
    return found


def ramp(value: str) -> tuple[float, ...]:
    """Steps in percent: `5,20,100`."""
    try:
        return tuple(float(step.strip().removesuffix("%")) for step in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a ramp: write percent of the letters, such as 5,20,100") from None


def careful(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options --canary, --ramp, --guard, --no-guard, --no-order and --deadline; the command gets them as `care`."""

    @functools.wraps(function)
    def with_care(**options: Any) -> Any:
        return function(care=_care(**{name: options.pop(name) for name in _CARE}), **options)

    wrapped: Callable[..., Any] = with_care
    for name, more in reversed(_CARE.items()):
        wrapped = click.option(f"--{name.replace('_', '-')}", **more)(wrapped)
    return wrapped


_CARE: dict[str, dict[str, Any]] = {
    "canary": {"type": int, "metavar": "5", "help": "So many letters first; what becomes of them is awaited."},
    "ramp": {"type": ramp, "metavar": "5,20,100", "help": "Then so many percent of them, each step awaited."},
    "guard": {"type": share, "metavar": "10%", "help": "Pause when more than this share of a step dies again."},
    "no_guard": {"is_flag": True, "help": "Send all at once. Over 100 letters are guarded otherwise."},
    "no_order": {"is_flag": True, "help": "Do not wait, among letters of one key, for the one before."},
    "deadline": {"type": span, "metavar": "15m", "help": "Pause when nothing is heard for so long of what is awaited."},
}


def _care(
    canary: int | None,
    ramp: tuple[float, ...] | None,
    guard: float | None,
    no_guard: bool,
    no_order: bool,
    deadline: timedelta | None,
) -> dict[str, Any]:
    """What `Service.replay` takes."""
    asked = {"canary": canary, "ramp": ramp, "share": guard}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if no_guard and given:
        raise click.UsageError("--no-guard sends all at once: it goes with none of --canary, --ramp and --guard")
    chosen = Guard(**given).checked() if given else None
    more = {} if deadline is None else {"deadline": deadline}
    return {"guard": chosen, "guard_many": not no_guard, "ordered": not no_order, **more}


_MANY: dict[str, tuple[str, Any, str]] = {
    "source": ("sources", str, "From this source."),
    "state": ("states", click.Choice([str(state) for state in State]), "In this state."),
    "category": ("categories", click.Choice([str(category) for category in Category]), "Of this kind of trouble."),
    "group": ("groups", str, "Of this group (`redrive groups`)."),
    "tenant": ("tenants", str, "Of this tenant."),
}
_ONE: dict[str, tuple[Any, str]] = {
    "error_type": (str, "With this error type: its full name, or the last part of it."),
    "code": (str, "With this code: an HTTP status, an SMTP or gRPC code."),
    "text": (str, "With this text in id, key, error or body."),
    "older_than": (span, "Buried, the last time, longer ago than this: 2h, 7d."),
    "newer_than": (span, "Buried, the last time, within this time: 30m, 1d."),
    "since": (moment, "Buried, the last time, at this time or later (ISO; UTC if it has no offset)."),
    "before": (moment, "Buried, the last time, before this time."),
}

_METAVARS = {span: "DURATION", moment: "TIME"}


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which letters; the command gets them as `query`."""

    @functools.wraps(command)
    def with_query(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in (*_MANY, *_ONE)}
        return command(query=query_of(chosen, datetime.now(UTC)), **options)

    wrapped: Callable[..., Any] = with_query
    for name, (kind, text) in reversed(_ONE.items()):
        metavar = _METAVARS.get(kind)
        wrapped = click.option(f"--{name.replace('_', '-')}", name, type=kind, metavar=metavar, help=text)(wrapped)
    for name, (_, kind, text) in reversed(_MANY.items()):
        complete = {"source": a_source, "group": a_group}.get(name)
        option = click.option(
            f"--{name}", name, type=kind, multiple=True, shell_complete=complete, help=f"{text} Repeatable."
        )
        wrapped = option(wrapped)
    return wrapped


def query_of(chosen: dict[str, Any], now: datetime) -> Query:
    """The query of those options; of two that bound the same time, the narrower counts."""
    many: dict[str, Any] = {field: tuple(chosen[name]) for name, (field, _, _) in _MANY.items() if chosen[name]}
    query = Query(
        error_type=chosen["error_type"],
        code=chosen["code"],
        text=chosen["text"],
        since=_narrower(max, chosen["since"], _ago(now, chosen["newer_than"])),
        before=_narrower(min, chosen["before"], _ago(now, chosen["older_than"])),
    )
    many["states"] = tuple(State(word) for word in chosen["state"]) or None
    many["categories"] = tuple(Category(word) for word in chosen["category"]) or None
    return replace(query, **many)


def until_now(query: Query) -> Query:
    """The query, bounded to now: what comes after somebody saw the numbers is not part of what he agrees to."""
    now = datetime.now(UTC)
    return replace(query, before=now if query.before is None else min(query.before, now))


def _ago(now: datetime, span: timedelta | None) -> datetime | None:
    try:
        return None if span is None else now - span
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _narrower(pick: Callable[[Sequence[datetime]], datetime], *times: datetime | None) -> datetime | None:
    known = [time for time in times if time is not None]
    return pick(known) if known else None


as_json = click.option("--json", "as_json", is_flag=True, help="For programs: JSON on stdout, and nothing else there.")
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
every = click.option("--all", "every", is_flag=True, help="Every letter there is, if no filter says which.")
