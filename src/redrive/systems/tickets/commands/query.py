"""`redrive tickets query`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import click

from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, line, say, show, table, tell_json
from redrive.config.settings import Settings
from redrive.forensics.failures import FailureMask
from redrive.forensics.redact import Redactor
from redrive.model import Letter
from redrive.systems.tickets.commands.session import Chosen, ask_tickets, dead_tickets, which, with_settings
from redrive.systems.tickets.settings import TicketSettings


def _task_type(letter: Letter) -> str:
    from redrive.systems.tickets.ticket import fields_of, task_type  # needs an extra, and --help needs none

    return task_type(fields_of(letter.message.body))


_BY: dict[str, Callable[[Letter], str]] = {
    "error-type": lambda letter: letter.last.type,
    "task-type": _task_type,
}


@click.command("query")
@which
@click.option("--by", type=click.Choice(list(_BY)), default=None, help="Count them instead of listing them.")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many at most.")
@with_settings
@as_json
@common
def query(chosen: Chosen, by: str | None, limit: int, settings: Settings, as_json: bool) -> None:
    """List the dead tickets in MongoDB, newest first, or count them by their error or their type."""
    asked = chosen.query(settings.of(TicketSettings).topic)
    found = ask_tickets(settings, lambda service: dead_tickets(service, asked, chosen, None if by else limit))
    if by is not None:
        counts = Counter(_BY[by](letter) for letter in found)
        tell_json(dict(counts.most_common())) if as_json else _show_counts(by, counts)
    elif as_json:
        tell_json([_document(letter, Redactor.of(settings.redact)) for letter in found])
    elif found:
        made = table("TICKET", "TYPE", "RETRIES", "AGE", "STATE", "ERROR", right=("RETRIES",))
        text = Redactor.of(settings.redact).text
        for letter in found:
            cells = (line(letter.message.id), line(_task_type(letter)), str(letter.last.attempt))
            made.add_row(
                *cells,
                age(letter.created_at),
                str(letter.state),
                line(f"{letter.last.type}: {text(letter.last.message)}", 100),
            )
        show(made)
    if not found:
        say("no dead ticket matches")
        raise click.exceptions.Exit(NOTHING)


def _show_counts(by: str, counts: Counter[str]) -> None:
    made = table("TICKETS", by.upper(), right=("TICKETS",))
    for name, count in counts.most_common():
        made.add_row(f"{count:,}", line(name))
    show(made)


def _document(letter: Letter, redactor: Redactor) -> dict[str, Any]:
    from redrive.systems.tickets.shape import OURS, TicketShape

    document = TicketShape().dump(FailureMask(redactor).letter(letter))
    document.pop(OURS)
    return {**document, "processed_at": letter.updated_at.isoformat(), "state": letter.state, "letter": letter.id}
