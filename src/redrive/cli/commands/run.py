"""`redrive run`: a worker."""

from __future__ import annotations

from datetime import timedelta

import click

from redrive.cli.apps import find_app
from redrive.cli.lazy import common
from redrive.cli.options import span
from redrive.cli.processes import several
from redrive.cli.scrape import Place, beside, scraped


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("--no-upkeep", is_flag=True, help="Leave automatic retries, rescue and pruning to other processes.")
@click.option("--grace", type=span, metavar="25s", help="How long handlers may finish after Ctrl-C. [setting: grace]")
@several
@scraped
@common
def run(target: str, no_upkeep: bool, grace: timedelta | None, scrape: Place | None) -> None:
    """Handle messages with your app until Ctrl-C; a second Ctrl-C stops at once, and loses nothing.

    \b
    redrive run shop:app                    app is a Redrive in shop.py, here or on the Python path
    redrive run shop:app --processes auto   a process for each CPU, restarted when one dies
    redrive run shop:app --reload           started again when you edit its files
    """
    from redrive.telemetry.logs import log_app  # structlog is for those who run, not for --help

    app = find_app(target)
    log_app(app)
    app.run(upkeep=not no_upkeep, grace=grace, beside=beside(app, scrape))
