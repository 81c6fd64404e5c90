"""`redrive groups`: the view for 3 a.m. Ten thousand letters as three causes, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click
from msgspec.structs import replace
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json, filters
from redrive.cli.output import age, error, letters_said, line, say, show, states, tell_json, to_copy, width
from redrive.cli.session import ask, command
from redrive.forensics.query import Query
from redrive.model import OPEN
from redrive.stores.base import Group


@click.command()
@filters
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@click.option("--closed", is_flag=True, help="Resolved and archived letters too.")
@as_json
@common
def groups(query: Query, limit: int, closed: bool, as_json: bool) -> None:
    """Group the open letters by root cause, the largest first, with the commands to look at each and to replay it.

    \b
    redrive groups --newer-than 1h
    redrive groups --state exhausted
    redrive groups --closed               what is resolved or archived, too
    """
    everything = query.is_empty
    if query.states is None and not closed:
        query = replace(query, states=OPEN)
    found = ask(lambda service: service.groups(query, limit=limit))
    if as_json:
        tell_json({"groups": found})
    elif found:
        show(*_shown(found))
    if not found:
        say("no open letters; --closed shows what is resolved or archived" if everything else "no letter matches")
        raise click.exceptions.Exit(NOTHING)
    if len(found) == limit and not as_json:
        say(f"These are the largest {limit}; --limit shows more.")


def _shown(found: Sequence[Group]) -> list[RenderableType]:
    now, parts = datetime.now(UTC), list[RenderableType]()
    for group in found:
        parts += [_head(group), Padding(_below(group, now), (0, 0, 0, 4)), *_commands(group), ""]
    return parts[:-1]


def _head(group: Group) -> Text:
    why = error(group.error_type, group.message, 2 * width())
    return Text.assemble(Text(letters_said(group.count), style="bold cyan"), f"  {group.category}  ", why)


def _below(group: Group, now: datetime) -> Text:
    seen = f"first {age(group.first_at, now)}, last {age(group.last_at, now)}"
    return Text.assemble(states(group.states), "  in ", line(", ".join(group.sources)), f"  {seen}")


def _commands(group: Group) -> list[Text]:
    return [
        to_copy("    look    ", command("letters", "--group", group.id)),
        to_copy("    replay  ", command("replay", "--group", group.id)),
    ]
