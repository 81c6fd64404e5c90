"""`redrive queue`: how the messages of a source stand."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.table import Table
from rich.text import Text

from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import WIDE, age, error, line, plain, say, show, table, tell_json, width
from redrive.cli.session import again, ask
from redrive.forensics.queue import QueuedView, QueuePage
from redrive.transports.base import QueueState

_STYLES = {QueueState.READY: "", QueueState.DELAYED: "yellow", QueueState.LEASED: "cyan"}


@click.command()
@click.argument("source")
@click.option("--state", type=click.Choice([str(state) for state in QueueState]), help="Only those that stand so.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="CURSOR", help="The next page: the cursor that the page before gave.")
@click.option("--transport", help="The transport that has it, where two have a source of that name.")
@as_json
@common
def queue(source: str, state: str | None, limit: int, after: str | None, transport: str | None, as_json: bool) -> None:
    """Show the messages of SOURCE: ready, delayed until their next attempt, leased and by whom.

    Nothing is leased or changed. What a broker cannot show is said.
    """
    wanted = None if state is None else QueueState(state)
    page = ask(lambda service: service.queue(source, state=wanted, after=after, limit=limit, transport=transport))
    if as_json:
        tell_json(page)
        return
    say(_summary(page))
    if page.messages:
        show(_table(page.messages))
    for note in page.notes:
        say(plain(note))
    if page.after is not None:
        say(f"There may be more: {again(after=page.after)}")
    if not page.messages and not page.notes:
        raise click.exceptions.Exit(NOTHING)


def _summary(page: QueuePage) -> str:
    depth, paused = page.depth, page.paused
    counts = f"{plain(page.source)}: {depth.ready:,} ready, {depth.delayed:,} delayed, {depth.leased:,} leased"
    if paused is None:
        return counts
    why = f" ({plain(paused.why)})" if paused.why else ""
    state = "in a storm, paused" if paused.storm else "paused"
    return f"{counts}; {state} by {plain(paused.by)}, {age(paused.at)}{why}"


def _table(found: list[QueuedView]) -> Table:
    now, wide = datetime.now(UTC), width() >= WIDE
    more = ("KEY", "TENANT", "PLACE") if wide else ()
    made = table("MESSAGE", "STATE", "AGE", "ATTEMPT", "WHEN", "BY", *more, "LAST ERROR", right=("ATTEMPT",))
    for message in found:
        extra = (line(message.key or ""), line(message.tenant or ""), line(message.place)) if wide else ()
        made.add_row(
            line(message.id),
            Text(message.state, style=_STYLES[message.state]),
            age(message.enqueued_at, now),
            f"{message.attempt}",
            age(message.next_attempt_at or message.leased_until, now),
            line(message.leased_by),
            *extra,
            error(message.error_type, message.error_message, width()) if message.error_type else Text(),
        )
    return made
