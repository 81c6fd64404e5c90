"""`redrive workers`: who works on what."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.table import Table
from rich.text import Text

from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, line, say, show, table, tell_json
from redrive.cli.session import ask
from redrive.forensics.workers import WorkerView, WorkingOn

_STYLES = {"running": "green", "draining": "yellow", "lost": "red"}


@click.command()
@as_json
@common
def workers(as_json: bool) -> None:
    """Show the workers that share this store: what each works on, since when, and how many messages it has in hand.

    A worker says every five seconds that it lives; one that was killed is lost after some of them, and forgotten after
    a day. If one seems lost, it is looked at for another beat: its clock may be wrong.
    """
    found = ask(lambda service: service.workers(patiently=True))
    if as_json:
        tell_json(found)
    elif found:
        show(_table(found))
    if not found:
        say("no worker has said anything: does one run, on this store?")
        raise click.exceptions.Exit(NOTHING)


def _table(found: list[WorkerView]) -> Table:
    now = datetime.now(UTC)
    made = table("WORKER", "STATE", "HOST", "PID", "VERSION", "SINCE", "BEAT", "IN HAND", "SOURCES", right=("IN HAND",))
    for worker in found:
        made.add_row(
            line(worker.worker),
            Text(worker.state, style=_STYLES[worker.state]),
            line(worker.host),
            f"{worker.pid}",
            line(worker.version),
            age(worker.started_at, now),
            _beat(worker, now),
            f"{worker.in_hand:,}",
            line(", ".join(map(_source, worker.sources))),
        )
    return made


def _beat(worker: WorkerView, now: datetime) -> str:
    apart = worker.clock_apart
    if apart is None:
        return age(worker.beat_at, now)
    return f"its clock is {abs(apart):.0f}s {'ahead' if apart > 0 else 'behind'}"


def _source(working: WorkingOn) -> str:
    word = "storm" if working.storm else "paused"
    return f"{working.source} ({word})" if working.paused else working.source
