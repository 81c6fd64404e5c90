"""`redrive run`: a worker."""

from __future__ import annotations

from datetime import timedelta

import click

from redrive.app import Redrive
from redrive.cli.apps import find_app
from redrive.cli.lazy import common
from redrive.cli.options import span
from redrive.cli.scrape import Place, beside, scraped
from redrive.forensics.redact import Redactor


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("--no-upkeep", is_flag=True, help="Leave automatic retries, rescue and pruning to other processes.")
@click.option("--grace", type=span, metavar="25s", help="How long handlers may finish after Ctrl-C. [setting: grace]")
@scraped
@common
def run(target: str, no_upkeep: bool, grace: timedelta | None, scrape: Place | None) -> None:
    """Handle messages with your app until Ctrl-C; a second Ctrl-C stops at once, and loses nothing.

    \b
    redrive run shop:app        app is a Redrive in shop.py, here or on the Python path
    """
    app = find_app(target)
    _log(app)
    app.run(upkeep=not no_upkeep, grace=grace, beside=beside(app, scrape))


def _log(app: Redrive) -> None:
    from redrive.telemetry.logs import log_events, setup_logs  # structlog is for those who run, not for --help

    logs, redact = app.settings.logs, app.settings.redact
    setup_logs(logs.level, logs.format)
    log_events(app.events, Redactor(redact.keys, redact.patterns, redact.defaults))
