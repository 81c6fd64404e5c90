"""`redrive approvals`: what waits for a second person."""

from __future__ import annotations

import click

from redrive.access.approvals import Approval
from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, line, say, show, table, tell_json
from redrive.cli.session import actor, ask


@click.group(invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@as_json
@common
@click.pass_context
def approvals(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List what waits for a second person, newest first; or approve, refuse or withdraw it.

    \b
    redrive approvals
    redrive approvals approve 01k0q8v3ya8mh1b9c4j2
    """
    if ctx.invoked_subcommand is not None:
        return
    found = ask(lambda service: service.four_eyes.seen_by(actor(), limit))
    if as_json:
        tell_json({"approvals": found})
    elif found:
        made = table("ID", "STATE", "ACT", "LETTERS", "BY", "AGE", "WHAT")
        for approval in found:
            made.add_row(
                approval.id,
                str(approval.state),
                approval.action,
                f"{approval.total:,}",
                line(str(approval.by)),
                age(approval.at),
                line(approval.result or approval.why or approval.what or approval.reason),
            )
        show(made)
    if not found:
        say("nothing waits for a second person")
        raise click.exceptions.Exit(NOTHING)


@approvals.command()
@click.argument("id")
@as_json
@common
def approve(id: str, as_json: bool) -> None:
    """Say yes, as somebody else than whoever asked; it is carried out on exactly what was frozen."""
    _tell(ask(lambda service: service.four_eyes.approve(id, actor=actor())), as_json)


@approvals.command()
@click.argument("id")
@click.option("--reason", required=True, help="Why not.")
@as_json
@common
def refuse(id: str, reason: str, as_json: bool) -> None:
    """Say no. Nothing of it is done."""
    _tell(ask(lambda service: service.four_eyes.refuse(id, actor=actor(), why=reason)), as_json)


@approvals.command()
@click.argument("id")
@as_json
@common
def withdraw(id: str, as_json: bool) -> None:
    """Take back what you asked for."""
    _tell(ask(lambda service: service.four_eyes.withdraw(id, actor=actor())), as_json)


def _tell(approval: Approval, as_json: bool) -> None:
    if as_json:
        tell_json(approval)
        return
    again = ": whoever asked says the same again, and it is done" if approval.digest and not approval.result else ""
    say(f"{approval.action} {approval.id} is {approval.state}{': ' + approval.result if approval.result else again}")
