"""`redrive stats`: letters and queues, counted."""

from __future__ import annotations

from datetime import timedelta

import click
from rich.table import Table
from rich.text import Text

from redrive.cli.exits import UNAVAILABLE
from redrive.cli.lazy import common
from redrive.cli.options import as_json, span
from redrive.cli.output import age, letters_said, line, plain, say, show, state, states, table, tell_json
from redrive.cli.session import ask
from redrive.forensics.series import By, bars
from redrive.forensics.stats import SourceStats, Stats
from redrive.model import State
from redrive.service import Asked, Home, SeriesView
from redrive.transports.base import Paused


@click.command()
@click.option("--since", type=span, help="What happened in this time, as a table with a sparkline: 1h, 24h, 7d.")
@as_json
@common
def stats(since: timedelta | None, as_json: bool) -> None:
    """Count letters by state, category and source, and the messages that wait in the queues.

    With --since: what was buried, retried and resolved in this time, and what was buried by source.

    \b
    redrive stats
    redrive stats --since 24h

    What answers within 5 seconds is shown; what does not is named on stderr, and in `unanswered` of --json.

    Exit codes: 0 the letters were counted, and whatever queues answered; 3 the store did not answer.
    """
    if since is not None:
        _past(since, as_json)
        return
    found = ask(lambda service: service.stats())
    if as_json:
        tell_json(found)
    else:
        _show(found)
    if found.total is None:
        raise click.exceptions.Exit(UNAVAILABLE)


def _past(since: timedelta, as_json: bool) -> None:
    outcomes, sources = ask(lambda service: _series(service, since))
    if as_json:
        tell_json({"outcomes": outcomes, "sources": sources})
        return
    made = table("", "TOTAL", "MOST", "", right=("TOTAL", "MOST"))
    for view in (outcomes, sources):
        for told in view.lines:
            name = told.name if view is outcomes else f"  {told.name}"
            made.add_row(line(name), f"{told.total:,}", f"{max(told.counts):,}", bars(told.counts))
    show(made)
    step = {60: "minute", 3600: "hour"}.get(outcomes.step, "day")
    say(outcomes.note or f"Each bar is one {step}; by source, what was buried.")


async def _series(service: Home, since: timedelta) -> tuple[SeriesView, SeriesView]:
    return await service.series(Asked(last=since)), await service.series(Asked(last=since, by=By.SOURCE))


def _show(found: Stats) -> None:
    if found.total is None or found.open is None:
        show("letters: not known, the store does not answer")
    else:
        show(f"{letters_said(found.total)}, {found.open:,} open")
    if found.categories:
        show(Text.assemble("open, by category: ", states(found.categories)))
    if found.sources:
        show("", _by_source(found))
    for source in found.sources:
        if source.paused is not None:
            say(_paused(source.source, source.paused))


def _by_source(found: Stats) -> Table:
    """The table of sources, with a column for each state that occurs."""
    used = [name for name in State if found.states.get(name)]
    queue = ("READY", "DELAYED", "LEASED")
    silent = any(backend.backend != "store" for backend in found.unanswered)
    numbers = (*(name.upper() for name in used), *queue)
    made = table("SOURCE", *numbers, right=numbers, folded="SOURCE")
    for source in found.sources:
        counts = (Text(f"{source.states.get(name, 0):,}", style=state(name).style) for name in used)
        made.add_row(line(source.source), *counts, *_depth(source, empty="?" if silent else "0"))
    return made


def _paused(source: str, paused: Paused) -> str:
    why = f": {plain(paused.why)}" if paused.why else ""
    state = "in a storm, paused" if paused.storm else "paused"
    return f"{plain(source)} is {state} by {plain(paused.by)}, {age(paused.at)}{why}"


def _depth(source: SourceStats, *, empty: str) -> tuple[str, str, str]:
    depth = source.queued
    return (empty,) * 3 if depth is None else (f"{depth.ready:,}", f"{depth.delayed:,}", f"{depth.leased:,}")
