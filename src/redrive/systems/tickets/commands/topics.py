"""`redrive tickets topics`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import show, table, tell_json
from redrive.config.settings import Settings
from redrive.systems.tickets.commands.session import with_settings
from redrive.systems.tickets.settings import TicketSettings

if TYPE_CHECKING:
    from redrive.systems.tickets.topics import Report


@click.command("topics")
@click.option("--dry-run", is_flag=True, help="Print what is wanted, and ask no broker.")
@click.option("--check", is_flag=True, help="Create nothing; exit code 1 if something differs.")
@with_settings
@as_json
@common
def topics(settings: Settings, dry_run: bool, check: bool, as_json: bool) -> None:
    """Create the topics that are missing, and say how those that exist differ. What exists is never changed."""
    from redrive.systems.tickets import topics as wanted_topics  # needs an extra, and --help needs none

    if dry_run:
        report = wanted_topics.Report(wanted_topics.wanted(settings.of(TicketSettings)))
    else:
        report = asyncio.run(wanted_topics.ensure(settings.of(TicketSettings), create=not check))
    if as_json:
        tell_json(report)
    else:
        _show_topics(report)
    if check and report.differences:
        raise click.exceptions.Exit(NOTHING)


def _show_topics(report: Report) -> None:
    made = table("TOPIC", "PARTITIONS", "REPLICAS", "SETTINGS", right=("PARTITIONS", "REPLICAS"))
    for topic in report.wanted:
        config = ", ".join(f"{name}={value}" for name, value in topic.config.items())
        made.add_row(topic.name, str(topic.partitions), str(topic.replicas), config)
    show(made)
    for name in report.created:
        show(f"created {name}")
    for text in report.differences:
        show(f"differs: {text}")
