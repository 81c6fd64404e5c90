"""`redrive letters`: which letters there are."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.table import Table
from rich.text import Text

from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json, filters
from redrive.cli.output import WIDE, age, error, line, say, show, state, table, tell_json, width
from redrive.cli.session import again, ask
from redrive.forensics.query import Query
from redrive.forensics.views import Summary


@click.command()
@filters
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="CURSOR", help="The next page: the cursor that the page before gave.")
@as_json
@common
def letters(query: Query, limit: int, after: str | None, as_json: bool) -> None:
    """List dead letters, newest first.

    \b
    redrive letters --state pending --source orders --newer-than 1d
    redrive letters --group 4kq2m7pxw3ab --text customer-7
    """
    page = ask(lambda service: service.letters(query, after=after, limit=limit))
    if as_json:
        tell_json(page)
    elif page.letters:
        show(listed(page.letters))
    if not page.letters:
        say("no more letters" if after else "no letters" if query.is_empty else "no letter matches")
        raise click.exceptions.Exit(NOTHING)
    if page.after is not None and not as_json:
        say(f"There may be more: {again(after=page.after)}")


def listed(found: list[Summary]) -> Table:
    """Letters as a table; the id is whole, so that it can be copied."""
    now, wide = datetime.now(UTC), width() >= WIDE
    more = ("CATEGORY", "GROUP", "TENANT", "TRIES") if wide else ()
    made = table("LETTER", "STATE", "AGE", "SOURCE", *more, "ERROR", right=("TRIES",))
    for letter in found:
        extra = (
            (Text(letter.category), Text(letter.group), line(letter.tenant or ""), Text(f"{letter.attempts}"))
            if wide
            else ()
        )
        why = error(_last(letter.error_type), letter.error_message, width())
        made.add_row(
            Text(letter.id), state(letter.state), age(letter.created_at, now), line(letter.source), *extra, why
        )
    return made


def _last(error_type: str) -> str:
    """The last part of a long name such as `requests.exceptions.ConnectionError`."""
    return error_type.rpartition(".")[2] if width() < WIDE else error_type
