"""`redrive purge`: letters deleted for good."""

from __future__ import annotations

import click

from redrive.cli.confirm import confirm
from redrive.cli.exits import NOTHING, Stopped, saying_how_far
from redrive.cli.lazy import common
from redrive.cli.options import as_json, every, filters, until_now, yes
from redrive.cli.output import letters_said, say, tell_json
from redrive.cli.progress import Bar
from redrive.cli.session import actor, again, ask
from redrive.forensics.query import Query


@click.command()
@filters
@every
@yes
@as_json
@common
def purge(query: Query, every: bool, yes: bool, as_json: bool) -> None:
    """Delete letters for good. A letter that is being retried or replayed is never deleted.

    \b
    redrive export old.jsonl --state resolved --older-than 30d
    redrive purge --state resolved --older-than 30d
    """
    if query.is_empty and not every:
        raise Stopped(
            "purge deletes for good: say which letters, by --state, --older-than, --source or --group, or --all of them"
        )
    bounded = until_now(query)
    total = ask(lambda service: service.count(bounded))
    if total == 0:
        raise Stopped("no letter matches: nothing was deleted", NOTHING)
    confirm(f"Delete {letters_said(total)} for good? `redrive export` keeps a copy.", yes=yes)
    with (
        Bar("deleting", total) as bar,
        saying_how_far(
            lambda: f"{bar.done:,} of {letters_said(total)} deleted. The same again goes on with the rest:\n{again()}"
        ),
    ):
        gone = ask(lambda service: service.purge(bounded, actor=actor(), progress=bar))
    tell_json({"purged": gone, "kept": total - gone}) if as_json else say(f"{letters_said(gone)} deleted")
    if gone < total:
        say(f"{letters_said(total - gone)} kept: on their way back to their source")
        raise click.exceptions.Exit(NOTHING)
