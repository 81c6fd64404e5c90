"""`redrive tickets worker` and `redrive tickets dlq-consumer`: the two processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from redrive.cli.apps import find_object
from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.options import span
from redrive.cli.output import letters_said, say
from redrive.cli.scrape import Place, beside, scraped
from redrive.config.settings import Settings
from redrive.systems.tickets.commands.session import with_settings
from redrive.worker import run_on_fast_loop, stop_on_signals, work

if TYPE_CHECKING:
    from redrive.systems.tickets.worker import TicketWorker

METRICS_PORT = 8000


@click.command("worker")
@click.argument("target", metavar="MODULE:FUNCTION")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    default=METRICS_PORT,
    show_default=True,
    help="0 takes a free one.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address of metrics and health.")
@click.option("--grace", type=span, metavar="25s", help="How long handlers may finish after Ctrl-C. [setting: grace]")
@with_settings
@common
def worker(target: str, settings: Settings, metrics_port: int, metrics_host: str, grace: timedelta | None) -> None:
    """Handle tickets until Ctrl-C; a second Ctrl-C stops at once, and loses nothing.

    FUNCTION gets the ticket as a dictionary and, if it takes two arguments, the Message.
    """
    from redrive.systems.tickets.worker import TicketWorker

    made = TicketWorker(_function(target), settings)
    run_on_fast_loop(_run(made, grace, Place(metrics_host, metrics_port)))


async def _run(made: TicketWorker, grace: timedelta | None, scrape: Place) -> None:
    from redrive.systems.tickets.metrics import measured
    from redrive.telemetry.logs import log_app

    async with made.app as app:
        log_app(app)
        await app.transport().check()
        await work(app, grace=grace, beside=beside(app, scrape, measured(made)))


@click.command("dlq-consumer")
@click.option("--once", is_flag=True, help="End when everything that lies there is stored.")
@scraped
@with_settings
@common
def dlq_consumer(settings: Settings, once: bool, scrape: Place | None) -> None:
    """Bring dead tickets from the DLQ topic into MongoDB, and tell whom `alerts.urls` names.

    While MongoDB is away nothing is committed; it catches up when it is back.
    """
    count = run_on_fast_loop(_consume(settings, once, scrape))
    say(f"{letters_said(count)} stored")


async def _consume(settings: Settings, once: bool, scrape: Place | None) -> int:
    from redrive.systems.tickets.forensics import DlqConsumer
    from redrive.telemetry.logs import log_app

    consumer = DlqConsumer(settings)
    log_app(consumer.app)
    stop_on_signals(consumer.stop)
    helpers = [asyncio.ensure_future(helper()) for helper in beside(consumer.app, scrape)]
    try:
        return await consumer.run(follow=not once)
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await consumer.aclose()


def _function(target: str) -> Callable[..., Any]:
    found = find_object(target, "handle", "make it a function that takes a ticket")
    if not callable(found):
        raise Stopped(f"{target} is no function: it takes a ticket")
    function: Callable[..., Any] = found
    return function
