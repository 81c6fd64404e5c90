"""`redrive fix`, `redrive mute` and `redrive unmute`: what people say of a group."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from redrive.cli.commands.groups import standing
from redrive.cli.completing import a_group
from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json, span
from redrive.cli.output import age, plain, say, tell_json
from redrive.cli.session import actor, ask, command

_group = click.argument("group", shell_complete=a_group)


@click.command()
@_group
@click.option("--in", "version", metavar="VERSION", help="The version that fixes it, as your workers report it.")
@click.option("--auto", is_flag=True, help="Replay its letters by itself once every worker runs that version.")
@click.option("--why", default="", metavar="TEXT", help="For whoever reads it later: a ticket, a commit.")
@click.option("--undo", is_flag=True, help="It is not fixed after all.")
@as_json
@common
def fix(group: str, version: str | None, auto: bool, why: str, undo: bool, as_json: bool) -> None:
    """Say that GROUP is fixed in a version of your code.

    When every worker of its sources runs at least that version, its letters go back (--auto), or you are told that they
    can. A letter that dies on it all the same makes the group regressed, and somebody is told.

    \b
    redrive fix 4kq2m7pxw3ab --in 1.4.2 --auto
    redrive fix 4kq2m7pxw3ab --undo
    """
    if undo == (version is not None):
        raise click.UsageError("say the version that fixes it with --in, or --undo, and not both")
    if version is None:
        view = ask(lambda service: service.unfix(group, actor=actor()))
        tell_json(view) if as_json else say(f"{plain(view.id)} is not fixed after all: it is {view.state}")
        return
    report = ask(lambda service: service.fix(group, version, actor=actor(), auto=auto, why=why))
    if as_json:
        tell_json(report)
        return
    for line in (*standing(report.group, datetime.now(UTC)), *report.notes):
        say(f"{plain(report.group.id)}: {plain(line)}")
    say(f"Take it back with: {command('fix', report.group.id, '--undo')}")


@click.command()
@_group
@click.option("--for", "length", type=span, metavar="DURATION", required=True, help="It comes back after this: 2h, 2d.")
@click.option("--why", required=True, metavar="TEXT", help="For whoever wonders about the silence.")
@as_json
@common
def mute(group: str, length: timedelta, why: str, as_json: bool) -> None:
    """Mute GROUP for a while: no alert of it is sent, and `redrive groups` leaves it out. It comes back by itself.

    \b
    redrive mute 4kq2m7pxw3ab --for 2d --why "the supplier mends it on Friday"
    """
    view = ask(lambda service: service.mute(group, length, actor=actor(), why=why))
    if as_json:
        tell_json(view)
    elif view.mute is not None:
        back = age(view.mute.until, datetime.now(UTC))
        say(f"{plain(view.id)} is muted, and comes back {back}; earlier with: {command('unmute', view.id)}")


@click.command()
@_group
@common
def unmute(group: str) -> None:
    """Let people hear of GROUP again before its time is over."""
    view = ask(lambda service: service.unmute(group, actor=actor()))
    if view is None:
        say(f"{plain(group)} was not muted")
        raise click.exceptions.Exit(NOTHING)
    say(f"{plain(view.id)} is heard of again; it is {view.state}")
