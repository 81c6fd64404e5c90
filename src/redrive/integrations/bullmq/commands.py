"""`redrive bullmq`: the failed jobs of Node's queues, as they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from redrive.app import Redrive
from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import say, tell_json
from redrive.cli.session import loaded
from redrive.integrations.bullmq.queues import BullQueue, queues_of
from redrive.integrations.bullmq.transport import BullTransport
from redrive.integrations.bullmq.watch import Watcher
from redrive.integrations.reporter import Reporter
from redrive.worker import run_on_fast_loop, stop_on_signals

_NAME = "bullmq"
_transport = click.option(
    "--transport", "name", default=_NAME, show_default=True, help="The transport that leads to the Redis of the queues."
)


@click.group()
def bullmq() -> None:
    """The failed jobs of BullMQ's queues as letters. Nothing changes in the Node app.

    The setting `transports.bullmq` leads to their Redis: bullmq+redis://host:6379/0, with ?prefix=… where your queues
    have one. `redrive collect bullmq+redis://host:6379/0/QUEUE` takes what has failed so far.
    """


@bullmq.command()
@click.argument("queues", nargs=-1, required=True)
@click.option("--spool", type=click.Path(path_type=Path), default=None, help="Where letters wait for the store.")
@_transport
@common
def watch(queues: tuple[str, ...], spool: Path | None, name: str) -> None:
    """Make letters of jobs as they fail, and resolve them as their replays succeed, until Ctrl-C.

    What has failed before is taken first. Letters wait on disk while the store is away. Any number of watchers may
    run for a queue.
    """
    run_on_fast_loop(_watch(queues, spool, name))


@bullmq.command("queues")
@_transport
@as_json
@common
def list_queues(name: str, as_json: bool) -> None:
    """The queues of that Redis: what has failed, waits and is worked on, and whether somebody watches."""
    found = run_on_fast_loop(_queues(name))
    if as_json:
        tell_json({"queues": found})
        return
    for queue in found:
        say(_line(queue))


def _line(queue: BullQueue) -> str:
    watched = "watched" if queue.watched else "not watched"
    counts = f"{queue.failed} failed, {queue.waiting} waiting, {queue.active} active"
    return f"{queue.name}  {counts}, {watched}{f', {queue.removes}' if queue.removes else ''}"


async def _queues(name: str) -> list[BullQueue]:
    async with Redrive(settings=loaded().settings) as app:
        return await queues_of(_opened(app, name))


async def _watch(queues: tuple[str, ...], spool: Path | None, name: str) -> None:
    async with Redrive(settings=loaded().settings) as app:
        transport = _opened(app, name)
        await transport.check()
        reporter = Reporter(app.settings.store, spool=spool, clock=app.clock)
        watchers = [Watcher(transport, queue, reporter, app.clock, name) for queue in dict.fromkeys(queues)]
        stop_on_signals(lambda: _stop(watchers))
        reporter.start()
        say(f"watching {', '.join(dict.fromkeys(queues))}; Ctrl-C ends it")
        try:
            await asyncio.gather(*(watcher.run() for watcher in watchers))
        finally:
            await asyncio.to_thread(reporter.close)


def _stop(watchers: Sequence[Watcher]) -> None:
    for watcher in watchers:
        watcher.stop()


def _opened(app: Redrive, name: str) -> BullTransport:
    if name not in app.settings.transports:
        raise Stopped(f'there is no transport {name!r}: set `transports.{name}`, as in "bullmq+redis://host:6379/0"')
    transport = app.transport(name)
    if not isinstance(transport, BullTransport):
        raise Stopped(f"transport {name!r} leads to no BullMQ: its URL begins with bullmq+redis://")
    return transport
