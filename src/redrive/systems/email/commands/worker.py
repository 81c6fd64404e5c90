"""`redrive email worker`: sends what is queued."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

import click

from redrive.cli.lazy import common
from redrive.cli.options import span
from redrive.cli.scrape import Place, beside, scraped
from redrive.config.settings import Settings
from redrive.systems.email.commands.session import email_settings
from redrive.systems.email.gateway import EmailGateway
from redrive.worker import Helper, run_on_fast_loop, work


@click.command()
@click.option("--sender", metavar="URL", help="Who delivers: smtp://, smtps://, ses://. [setting: email.sender]")
@click.option("--no-upkeep", is_flag=True, help="Leave automatic reprocessing and trimming to other processes.")
@click.option("--grace", type=span, metavar="25s", help="How long jobs may finish after Ctrl-C. [setting: grace]")
@scraped
@common
def worker(sender: str | None, no_upkeep: bool, grace: timedelta | None, scrape: Place | None) -> None:
    """Send e-mail until Ctrl-C; a second Ctrl-C stops at once, and loses no job.

    It refuses to start on a Redis that could lose jobs (`redrive email redis-conf` prints a good configuration), and
    on a sender that will not have it. Start as many as you like: rate and fairness hold over all of them.
    """
    run_on_fast_loop(_run(email_settings(), sender, not no_upkeep, grace, scrape))


async def _run(
    settings: Settings, sender: str | None, upkeep: bool, grace: timedelta | None, scrape: Place | None
) -> None:
    async with EmailGateway(settings, sender=sender) as gateway, contextlib.AsyncExitStack() as stack:
        _log(gateway)
        await gateway.sender.check()
        await gateway.app.transport().check()
        helpers = [gateway.sweep, *await _scraped(gateway, scrape, stack)]
        await work(gateway.app, upkeep=upkeep, grace=grace, beside=helpers)


async def _scraped(gateway: EmailGateway, scrape: Place | None, stack: contextlib.AsyncExitStack) -> Sequence[Helper]:
    if scrape is None:
        return ()
    from redrive.systems.email.metrics import measured

    metrics, watch = measured(gateway)
    stack.push_async_callback(watch.aclose)
    return beside(gateway.app, scrape, metrics)


def _log(gateway: EmailGateway) -> None:
    """Log failed attempts in the contract's fields for programs, in ours for people."""
    from redrive.forensics.redact import Redactor
    from redrive.systems.email.logs import AttemptLog
    from redrive.telemetry.logs import EventLog, is_for_people, setup_logs

    logs, email = gateway.settings.logs, gateway.email
    redactor = Redactor.of(gateway.settings.redact)
    setup_logs(logs.level, logs.format, redactor=redactor)
    ours = EventLog(redactor)
    contract = AttemptLog(email.queue, email.attempts, ours, redactor=redactor)
    gateway.app.events.subscribe(ours if is_for_people(logs.format) else contract)
