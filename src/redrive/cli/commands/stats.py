"""`redrive stats`: letters and queues, counted."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from redrive.cli.exits import UNAVAILABLE
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, letters_said, line, plain, say, show, state, states, table, tell_json
from redrive.cli.session import ask
from redrive.forensics.stats import SourceStats, Stats
from redrive.model import State
from redrive.transports.base import Paused


@click.command()
@as_json
@common
def stats(as_json: bool) -> None:
    """Count letters by state, category and source, and the messages that wait in the queues.

    What answers within 5 seconds is shown; what does not is named on stderr, and in `unanswered` of --json.

    Exit codes: 0 the letters were counted, and whatever queues answered; 3 the store did not answer.
    """
    found = ask(lambda service: service.stats())
    if as_json:
        tell_json(found)
    else:
        _show(found)
    if found.total is None:
        raise click.exceptions.Exit(UNAVAILABLE)


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
