"""`redrive held`: keys of which a message is dead, and what waits behind it."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.table import Table

from redrive.cli.completing import a_source
from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, error, line, say, show, table, tell_json, to_copy, width
from redrive.cli.session import ask, command
from redrive.forensics.held import HeldView


@click.command()
@click.argument("source", required=False, shell_complete=a_source)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="At most so many keys.")
@as_json
@common
def held(source: str | None, limit: int, as_json: bool) -> None:
    """Show the keys that a dead letter holds, of SOURCE or of all: those with the most letters behind it first.

    They are held by `Policy(on_death="hold-key")`. Resolve or archive the letter, and those behind it follow in order.
    """
    found = ask(lambda service: service.held(source, limit=limit))
    if as_json:
        tell_json(found)
    elif found:
        show(_table(found))
        show("", to_copy("See why  ", command("show", found[0].letter)))
    if not found:
        say("no key is held")
        raise click.exceptions.Exit(NOTHING)


def _table(found: list[HeldView]) -> Table:
    now = datetime.now(UTC)
    made = table("LETTER", "STATE", "SOURCE", "KEY", "BEHIND", "SINCE", "UNTIL", "ERROR", right=("BEHIND",))
    for key in found:
        made.add_row(
            key.letter,
            line(key.state or "gone"),
            line(key.source),
            line(key.key),
            f"{key.behind:,}",
            age(key.since, now),
            age(key.until, now),
            error(key.error_type, key.error_message, width()),
        )
    return made
