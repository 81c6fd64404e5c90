"""`redrive pause` and `redrive resume`: a source paused for all its workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
from rich.table import Table

from redrive.cli.completing import a_source
from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json, span
from redrive.cli.output import age, line, plain, say, show, table, tell_json
from redrive.cli.session import Needs, actor, ask, command
from redrive.flow.pauses import SourcePause

_transport = click.option("--transport", help="The transport that has it, where two have a source of that name.")


@click.command()
@click.argument("source", required=False, shell_complete=a_source)
@click.option("--why", default="", metavar="TEXT", help="For whoever finds it paused.")
@click.option("--for", "length", type=span, metavar="DURATION", help="It goes on by itself after this time: 30m, 2h.")
@click.option("--force", is_flag=True, help="Also a source that nobody knows yet.")
@click.option("--list", "listed", is_flag=True, help="Only show what is paused, by whom, since when and why.")
@_transport
@as_json
@common
def pause(
    source: str | None,
    why: str,
    length: timedelta | None,
    force: bool,
    listed: bool,
    transport: str | None,
    as_json: bool,
) -> None:
    """Pause SOURCE: no worker receives anything of it until it is resumed. What runs may end, and sending goes on.

    \b
    redrive pause orders --why "the payment provider is down"
    redrive pause --list
    """
    if listed:
        _list(as_json)
        return
    if source is None:
        raise click.UsageError("which source? `redrive pause --list` shows those that are paused")
    if length is not None and length <= timedelta():
        raise click.BadParameter("it has to be longer than nothing", param_hint="--for")
    report = ask(
        lambda service: service.pause(source, actor=actor(), why=why, span=length, transport=transport, force=force),
        Needs.NOTHING if force else Needs.QUEUES,
    )
    if as_json:
        tell_json(report)
    elif report.is_new:
        say(f"{plain(source)} is paused; let it go on with: {command('resume', source)}")
    else:
        say(f"{plain(source)} was paused already, {_said(report.pause)}")


@click.command()
@click.argument("source", shell_complete=a_source)
@_transport
@common
def resume(source: str, transport: str | None) -> None:
    """Let SOURCE go on after `redrive pause`, whoever has paused it."""
    ended = ask(lambda service: service.resume(source, actor=actor(), transport=transport), Needs.QUEUES)
    if ended is None:
        say(f"{plain(source)} was not paused")
        raise click.exceptions.Exit(NOTHING)
    say(f"{plain(source)} goes on; it was paused {_said(ended)}")


def _list(as_json: bool) -> None:
    found = ask(lambda service: service.pauses())
    if as_json:
        tell_json(found)
    elif found:
        show(_table(found))
    if not found:
        say("nothing is paused")
        raise click.exceptions.Exit(NOTHING)


def _table(found: list[SourcePause]) -> Table:
    now = datetime.now(UTC)
    made = table("SOURCE", "TRANSPORT", "SINCE", "UNTIL", "BY", "WHY")
    for paused in found:
        until = "probes succeed" if paused.storm else age(paused.until, now) or "resumed"
        made.add_row(
            line(paused.source), line(paused.transport), age(paused.at, now), until, line(paused.by), line(paused.why)
        )
    return made


def _said(paused: SourcePause) -> str:
    """By whom, since when and why."""
    why = f": {plain(paused.why)}" if paused.why else ""
    return f"by {plain(paused.by)}, {age(paused.at)}{why}"
