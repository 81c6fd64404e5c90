"""`redrive files`: file processing on RabbitMQ.

What needs a library of the extra is imported where it is used, so that the help needs none.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.table import Table

from redrive.app import Redrive
from redrive.cli.apps import find_object
from redrive.cli.confirm import confirm
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json, span, yes
from redrive.cli.output import line, say, show, table, tell_json
from redrive.cli.scrape import Place, beside, scraped
from redrive.cli.session import actor, loaded
from redrive.config.settings import Settings
from redrive.errors import ConfigError
from redrive.systems.files.settings import FilesSettings
from redrive.systems.files.topology import QUEUES
from redrive.transports.rabbitmq.definitions import as_text, definitions
from redrive.transports.rabbitmq.topology import declared
from redrive.worker import run_on_fast_loop, work

if TYPE_CHECKING:
    from redrive.systems.files.dead_letters import DeadLetterQueues, Depth, Shown
    from redrive.systems.files.worker import FilesWorker
    from redrive.transports.rabbitmq.management import Difference, Management

T = TypeVar("T")


@click.group()
@common
def files() -> None:
    """Documents on their way through seven queues of RabbitMQ, with retry, a dead-letter queue and re-drive for each.

    Settings are those of the section `files`: `redrive config` shows them.

    \b
    redrive files definitions > definitions.json    what RabbitMQ loads
    redrive files import                            make what is missing on the broker
    redrive files worker shop.files:handlers        handle the queues
    redrive files dlq list                          what is dead
    redrive files dlq re-drive q.thumbnail.dlq      send it round again
    """


# -- the topology ------------------------------------------------------------------------------------------------------


@files.command("definitions")
@click.option("--vhost", default=None, help="The virtual host in it. [by default that of files.url, or /]")
@common
def print_definitions(vhost: str | None) -> None:
    """Print definitions.json: exchanges, queues and bindings. The same settings print the same bytes.

    \b
    rabbitmqctl import_definitions definitions.json
    """
    from redrive.systems.files.worker import vhost_of, wanted

    own = loaded().settings.of(FilesSettings)
    place = vhost or ("/" if own.url is None else vhost_of(own))
    click.echo(as_text(definitions(declared(wanted(own)), place)), nl=False)


@files.command("import")
@as_json
@common
def import_definitions(as_json: bool) -> None:
    """Make what is missing on the broker, through its management API; what is there stays as it is.

    If something is there under the same name and differs, nothing is changed.
    """
    from redrive.systems.files.worker import wanted

    settings = loaded().settings
    made = asyncio.run(_managed(settings, lambda broker: broker.apply(declared(wanted(settings.of(FilesSettings))))))
    if as_json:
        tell_json({"made": list(made)})
        return
    for name in made:
        show(f"made {name}")
    show(f"{len(made)} made" if made else "nothing to do: the broker has it all")


@files.command("diff")
@as_json
@common
def diff(as_json: bool) -> None:
    """Compare the broker with the topology.

    Exit codes: 0 they agree; 1 they do not.
    """
    from redrive.systems.files.worker import wanted

    settings = loaded().settings
    found = asyncio.run(
        _managed(settings, lambda broker: broker.difference(declared(wanted(settings.of(FilesSettings)))))
    )
    tell_json(found) if as_json else _show_difference(found)
    if not found.is_none:
        raise click.exceptions.Exit(NOTHING)


async def _managed(settings: Settings, work: Callable[[Management], Awaitable[T]]) -> T:
    from redrive.systems.files.worker import management_url, vhost_of
    from redrive.transports.rabbitmq.management import Clashes, Management

    broker = Management(management_url(settings.of(FilesSettings)), vhost=vhost_of(settings.of(FilesSettings)))
    try:
        return await work(broker)
    except Clashes as clash:
        raise Stopped(str(clash)) from clash
    finally:
        await broker.aclose()


def _show_difference(found: Difference) -> None:
    for sign, what, some in (
        ("-", "missing", found.missing),
        ("!", "differs", found.clashes),
        ("+", "extra", found.extra),
    ):
        for item in some:
            show(f"{sign} {what}: {item}")
    if found.is_none:
        show("the broker has just what it should")


# -- the worker --------------------------------------------------------------------------------------------------------


@files.command("worker")
@click.argument("target", metavar="MODULE:HANDLERS")
@click.option("--queue", "queues", multiple=True, help="Handle only this queue. Repeatable.")
@click.option(
    "--bury",
    type=click.Choice(["dlq", "store", "both"]),
    default="dlq",
    show_default=True,
    help="Where dead messages go.",
)
@click.option("--grace", type=span, metavar="25s", help="How long handlers may finish after Ctrl-C. [setting: grace]")
@scraped
@common
def worker(target: str, queues: tuple[str, ...], bury: str, grace: timedelta | None, scrape: Place | None) -> None:
    """Handle the queues of the files until Ctrl-C; a second Ctrl-C stops at once, and loses nothing.

    HANDLERS is a dictionary in your module: a function for each queue. They get the body and, if they take two
    arguments, the Message.

    \b
    handlers = {"q.thumbnail": make_thumbnail, "q.audit": note}
    """
    from redrive.systems.files.worker import FilesWorker

    handlers = _handlers(target)
    if queues:
        missing = [queue for queue in queues if queue not in handlers]
        if missing:
            raise ConfigError(f"{target} has no handler for {missing[0]!r}: it has {', '.join(handlers)}")
        handlers = {queue: handlers[queue] for queue in queues}
    run_on_fast_loop(_run(FilesWorker(handlers, loaded().settings, bury=bury), grace, scrape))


async def _run(files: FilesWorker, grace: timedelta | None, scrape: Place | None) -> None:
    async with files.app as app:
        _log(files)
        await app.transport().check()
        await work(app, grace=grace, beside=[files.sweep, *beside(app, scrape)])


def _log(files: FilesWorker) -> None:
    """Log in the contract's fields for programs, in ours for people."""
    from redrive.forensics.redact import Redactor
    from redrive.systems.files.logs import FilesLog
    from redrive.telemetry.logs import EventLog, is_for_people, setup_logs

    logs = files.settings.logs
    redactor = Redactor.of(files.settings.redact)
    setup_logs(logs.level, logs.format, redactor=redactor)
    ours = EventLog(redactor)
    if is_for_people(logs.format):
        files.app.events.subscribe(ours)
    else:
        files.log_to(FilesLog(QUEUES, files.settings.of(FilesSettings).retries + 1, ours, redactor=redactor))


def _handlers(target: str) -> dict[str, Callable[..., Any]]:
    found = find_object(target, "handlers", "make it a dictionary of queues and functions")
    if not isinstance(found, Mapping) or not all(callable(handler) for handler in found.values()):
        raise Stopped(f"{target} is no dictionary of queues and functions: write {{'q.audit': note}}")
    return dict(found)


# -- dead letters ------------------------------------------------------------------------------------------------------


@files.group("dlq")
@common
def dlq() -> None:
    """Messages of the dead-letter queues: look at them, send them round again."""


@dlq.command("list")
@as_json
@common
def list_queues(as_json: bool) -> None:
    """Every dead-letter queue, and how many messages it holds."""
    found = _ask(lambda dead: dead.queues())
    tell_json({"queues": found}) if as_json else show(_depths(found))


@dlq.command("peek")
@click.argument("queue")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@as_json
@common
def peek(queue: str, limit: int, as_json: bool) -> None:
    """Show the first messages of a dead-letter queue. They stay where and as they are."""
    found = _ask(lambda dead: dead.messages(queue, limit))
    tell_json({"messages": found}) if as_json else show(_messages(found))
    if not found:
        raise click.exceptions.Exit(NOTHING)


@dlq.command("re-drive")
@click.argument("queue")
@click.option(
    "--limit", type=click.IntRange(1), default=None, help="At most so many. [default: all that lie there now]"
)
@yes
@as_json
@common
def redrive(queue: str, limit: int | None, yes: bool, as_json: bool) -> None:
    """Send messages of a dead-letter queue round again: to the queue they came from, and to no other.

    The copy is confirmed before the dead message is acknowledged: none can be lost. Stop it when you like.
    """
    plan = _ask(lambda dead: dead.plan(queue, limit))
    if not plan.found:
        raise Stopped(f"{queue} is empty", NOTHING)
    confirm(f"{plan.note}\nSend {plan.wanted:,} of {plan.found:,} messages of {queue} back to {plan.source}?", yes=yes)
    done = _ask(lambda dead: dead.redrive(queue, plan.wanted, actor=actor(), progress=_progress(as_json)))
    if as_json:
        tell_json(done)
        return
    show(f"{done.sent:,} of {done.found:,} messages of {queue} are on their way")
    if done.refused:
        say(f"{done.refused:,} stay in {queue}: the broker will never take them ({done.why})")


def _progress(quiet: bool) -> Callable[[int, int], None] | None:
    if quiet or not sys.stderr.isatty():
        return None

    def show_progress(sent: int, of: int) -> None:
        click.echo(f"\r{sent:,} of {of:,}", err=True, nl=sent == of)

    return show_progress


def _ask(work: Callable[[DeadLetterQueues], Awaitable[T]]) -> T:
    from redrive.systems.files.dead_letters import DeadLetterQueues

    async def asked() -> T:
        async with Redrive(settings=loaded().settings) as app:
            dead = DeadLetterQueues.of(app)
            try:
                return await work(dead)
            finally:
                await dead.aclose()

    return asyncio.run(asked())


def _depths(found: list[Depth]) -> Table:
    shown = table("queue", "messages", "goes back to")
    for depth in found:
        shown.add_row(
            depth.queue, "not on the broker" if depth.messages is None else f"{depth.messages:,}", depth.source
        )
    return shown


def _messages(found: list[Shown]) -> Table:
    shown = table("id", "routing key", "why", "attempts", "re-driven", "body")
    for message in found:
        why = str(message.headers.get("x-redrive-error-type", ""))
        text = str(message.headers.get("x-redrive-error-message", ""))
        shown.add_row(
            line(message.message_id or "–"),
            line(message.routing_key),
            line(f"{why}: {text}" if text else why, 60),
            str(message.headers.get("x-redrive-attempts", "")),
            str(message.headers.get("x-redriven-count", "")),
            line(message.body, 80),
        )
    return shown
