"""`redrive tickets`: the ticket worker on Kafka."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from redrive.cli.campaign import Patience, campaign, waiting
from redrive.cli.confirm import confirm
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json, rate, span, until_now, yes
from redrive.cli.output import age, letters_said, line, say, show, table, tell_json
from redrive.cli.scrape import Place, beside, scraped
from redrive.cli.session import Needs, actor, ask, loaded
from redrive.config import Settings
from redrive.flow.replay import Replay
from redrive.forensics.query import Query
from redrive.model import OPEN, Letter
from redrive.service import Service
from redrive.systems.tickets import topics as wanted_topics
from redrive.systems.tickets.config import with_values
from redrive.systems.tickets.forensics import DlqConsumer
from redrive.systems.tickets.relay import Relay
from redrive.systems.tickets.store import store_url
from redrive.systems.tickets.ticket import fields_of, task_type
from redrive.systems.tickets.worker import TicketWorker, kafka_options
from redrive.worker import Worker, fast_loop, stop_on_signals

T = TypeVar("T")
METRICS_PORT = 8000
_PAGE = 500


@click.group()
@common
def tickets() -> None:
    """Execution tickets on Kafka: in order for each ticket, retries counted in Redis, dead ones in MongoDB.

    Settings are those of the section `tickets`: `redrive config` shows them. KAFKA_DLQ_TOPIC and
    KAFKA_MAX_RETRIES_BEFORE_DLQ are read too, and with --values the keys kafka.dlq.* of a YAML file.

    \b
    redrive tickets topics                      create the topics, and say how existing ones differ
    redrive tickets worker shop.tickets:handle  handle tickets; metrics are on port 8000
    redrive tickets dlq-consumer                bring dead tickets into MongoDB, and alert
    redrive tickets query --by error-type       why they died
    redrive tickets republish --error-type TimeoutError
    """


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option --values; the command gets the settings as `settings`."""

    @functools.wraps(command)
    def called(values: Path | None, **options: Any) -> Any:
        return command(settings=with_values(loaded().settings, values), **options)

    text = "A YAML file with kafka.dlq.{enabled,topic,maxRetriesBeforeDLQ}."
    return click.option("--values", type=click.Path(exists=True, dir_okay=False, path_type=Path), help=text)(called)


# -- topics ------------------------------------------------------------------------------------------------------------


@tickets.command("topics")
@click.option("--dry-run", is_flag=True, help="Print what is wanted, and ask no broker.")
@click.option("--check", is_flag=True, help="Create nothing; exit code 1 if something differs.")
@with_settings
@as_json
@common
def topics(settings: Settings, dry_run: bool, check: bool, as_json: bool) -> None:
    """Create the topics that are missing, and say how those that exist differ. What exists is never changed."""
    if dry_run:
        report = wanted_topics.Report(wanted_topics.wanted(settings.tickets))
    else:
        report = asyncio.run(wanted_topics.ensure(settings.tickets, create=not check))
    if as_json:
        tell_json(report)
    else:
        _show_topics(report)
    if check and report.differences:
        raise click.exceptions.Exit(NOTHING)


def _show_topics(report: wanted_topics.Report) -> None:
    made = table("TOPIC", "PARTITIONS", "REPLICAS", "SETTINGS", right=("PARTITIONS", "REPLICAS"))
    for one in report.wanted:
        config = ", ".join(f"{name}={value}" for name, value in one.config.items())
        made.add_row(one.name, str(one.partitions), str(one.replicas), config)
    show(made)
    for name in report.created:
        show(f"created {name}")
    for text in report.differences:
        show(f"differs: {text}")


# -- the two processes -------------------------------------------------------------------------------------------------


@tickets.command("worker")
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
    made = TicketWorker(_function(target), settings)
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_run(made, grace, Place(metrics_host, metrics_port)))


async def _run(made: TicketWorker, grace: timedelta | None, scrape: Place) -> None:
    from redrive.systems.tickets.figures import measured

    async with made.app as app:
        _log(made.settings, app)
        await app.transport().check()
        one = Worker(app, grace=grace, beside=beside(app, scrape, measured(made)))
        stop_on_signals(one.stop)
        await one.run()


@tickets.command("dlq-consumer")
@click.option("--once", is_flag=True, help="End when everything that lies there is stored.")
@scraped
@with_settings
@common
def dlq_consumer(settings: Settings, once: bool, scrape: Place | None) -> None:
    """Bring dead tickets from the DLQ topic into MongoDB, and tell whom `alerts.urls` names.

    While MongoDB is away nothing is committed; it catches up when it is back.
    """
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        count = runner.run(_consume(settings, once, scrape))
    say(f"{letters_said(count)} stored")


async def _consume(settings: Settings, once: bool, scrape: Place | None) -> int:
    consumer = DlqConsumer(settings)
    _log(settings, consumer.app)
    stop_on_signals(consumer.stop)
    helpers = [asyncio.ensure_future(helper()) for helper in beside(consumer.app, scrape)]
    try:
        return await consumer.run(follow=not once)
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await consumer.aclose()


def _log(settings: Settings, app: Any) -> None:
    from redrive.forensics.redact import Redactor
    from redrive.telemetry.logs import log_events, setup_logs

    setup_logs(settings.logs.level, settings.logs.format)
    redact = settings.redact
    log_events(app.events, Redactor(redact.keys, redact.patterns, redact.defaults))


def _function(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name or "handle")
    except ModuleNotFoundError as error:
        raise Stopped(f"no module {module!r} in {Path.cwd()} or on the Python path ({error})") from error
    except AttributeError as error:
        raise Stopped(f"{module!r} has no function {name or 'handle'!r}") from error
    if not callable(found):
        raise Stopped(f"{target} is no function: it takes a ticket")
    function: Callable[..., Any] = found
    return function


# -- dead tickets ------------------------------------------------------------------------------------------------------


def which(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which dead tickets; the command gets them as `chosen`."""

    @functools.wraps(command)
    def called(
        task_types: tuple[str, ...],
        error_type: str | None,
        ticket: tuple[str, ...],
        newer: Any,
        older: Any,
        **rest: Any,
    ) -> Any:
        return command(chosen=Chosen(task_types, error_type, ticket, newer, older), **rest)

    wrapped: Callable[..., Any] = called
    for option in (
        click.option(
            "--older-than", "older", type=span, metavar="DURATION", help="Dead for longer than this: 2h, 90d."
        ),
        click.option("--newer-than", "newer", type=span, metavar="DURATION", help="Dead within this time: 30m, 1d."),
        click.option("--ticket", multiple=True, metavar="ID", help="This ticket. Repeatable."),
        click.option("--error-type", help="With this type of error."),
        click.option("--task-type", "task_types", multiple=True, help="Of this type. Repeatable."),
    ):
        wrapped = option(wrapped)
    return wrapped


class Chosen:
    """Which dead tickets."""

    def __init__(
        self,
        task_types: tuple[str, ...],
        error_type: str | None,
        ids: tuple[str, ...],
        newer: timedelta | None,
        older: timedelta | None,
    ) -> None:
        self._task_types = task_types
        self._error_type = error_type
        self._ids = ids
        self._newer = newer
        self._older = older
        self.is_narrow = any((task_types, error_type, ids, newer, older))

    def query(self, topic: str) -> Query:
        from datetime import UTC, datetime

        now = datetime.now(UTC)
        return Query(
            states=OPEN,
            sources=(topic,),
            error_type=self._error_type,
            message_ids=self._ids or None,
            since=None if self._newer is None else now - self._newer,
            before=None if self._older is None else now - self._older,
        )

    def wants(self, letter: Letter) -> bool:
        """What a query cannot ask for."""
        return not self._task_types or task_type(fields_of(letter.message.body)) in self._task_types


def _ask(settings: Settings, work: Callable[[Service], Awaitable[T]]) -> T:
    async def declared(service: Service) -> T:
        service.app.declare(settings.tickets.topic)
        return await work(service)

    return ask(declared, Needs.QUEUES, on_mongodb(settings))


def on_mongodb(settings: Settings) -> Settings:
    """Letters are the dead tickets, and go back to Kafka."""
    own = settings.tickets
    return replace(settings, store=store_url(own), transports={**settings.transports, "default": own.kafka})


async def _letters(service: Service, query: Query, chosen: Chosen, limit: int | None) -> list[Letter]:
    """Newest first."""
    found: list[Letter] = []
    after = None
    while limit is None or len(found) < limit:
        page = await service.app.store.letters.search(query, after=after, limit=_PAGE)
        found += [letter for letter in page.letters if chosen.wants(letter)]
        after = page.after
        if after is None:
            break
    return found if limit is None else found[:limit]


_BY: dict[str, Callable[[Letter], str]] = {
    "error-type": lambda letter: letter.last.type,
    "task-type": lambda letter: task_type(fields_of(letter.message.body)),
}


@tickets.command("query")
@which
@click.option("--by", type=click.Choice(list(_BY)), default=None, help="Count them instead of listing them.")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many at most.")
@with_settings
@as_json
@common
def query(chosen: Chosen, by: str | None, limit: int, settings: Settings, as_json: bool) -> None:
    """List the dead tickets in MongoDB, newest first, or count them by their error or their type."""
    asked = chosen.query(settings.tickets.topic)
    found = _ask(settings, lambda service: _letters(service, asked, chosen, None if by else limit))
    if by is not None:
        counts = Counter(_BY[by](letter) for letter in found)
        tell_json(dict(counts.most_common())) if as_json else _show_counts(by, counts)
    elif as_json:
        tell_json([_told(letter) for letter in found])
    elif found:
        made = table("TICKET", "TYPE", "RETRIES", "AGE", "STATE", "ERROR", right=("RETRIES",))
        for one in found:
            fields = fields_of(one.message.body)
            cells = (line(one.message.id), line(task_type(fields)), str(one.last.attempt))
            made.add_row(*cells, age(one.created_at), str(one.state), line(f"{one.last.type}: {one.last.message}", 100))
        show(made)
    if not found:
        say("no dead ticket matches")
        raise click.exceptions.Exit(NOTHING)


def _show_counts(by: str, counts: Counter[str]) -> None:
    made = table("TICKETS", by.upper(), right=("TICKETS",))
    for name, count in counts.most_common():
        made.add_row(f"{count:,}", line(name))
    show(made)


def _told(letter: Letter) -> dict[str, Any]:
    from redrive.systems.tickets.shape import OURS, TicketShape

    document = TicketShape().dump(letter)
    document.pop(OURS)
    return {**document, "processed_at": letter.updated_at.isoformat(), "state": letter.state, "letter": letter.id}


@tickets.command("republish")
@which
@click.option("--all", "every", is_flag=True, help="Every dead ticket.")
@click.option("--from-topic", is_flag=True, help="Straight from the DLQ topic, in transactions, without MongoDB.")
@click.option("--limit", type=click.IntRange(1), default=None, help="At most so many, the newest first.")
@click.option("--rate", "pace", type=rate, metavar="50/s", help="At most so many a second (50, 50/s, 3000/m).")
@click.option("--dry-run", is_flag=True, help="Say how many, and send nothing.")
@waiting
@with_settings
@yes
@as_json
@common
def republish(
    chosen: Chosen,
    every: bool,
    from_topic: bool,
    limit: int | None,
    pace: float | None,
    dry_run: bool,
    patience: Patience,
    settings: Settings,
    yes: bool,
    as_json: bool,
) -> None:
    """Send dead tickets back to their topic, with their key and their headers. Say which.

    From MongoDB it is a replay: exactly what was selected is sent, once, and each ticket's outcome is known. With
    --from-topic it is one Kafka transaction after the other, from where the last one ended.
    """
    if from_topic:
        if chosen.is_narrow or pace is not None:
            raise Stopped("--from-topic sends all that lies on the DLQ topic: to choose, or to go slowly, leave it out")
        _relay(limit, dry_run, settings, yes=yes, as_json=as_json)
        return
    if not chosen.is_narrow and not every:
        raise Stopped("which tickets? Give --ticket, --task-type, --error-type or an age, or --all")
    asked = until_now(chosen.query(settings.tickets.topic))
    ids = tuple(letter.id for letter in _ask(settings, lambda service: _letters(service, asked, chosen, limit)))
    if not ids:
        raise Stopped("no dead ticket matches: nothing was sent", NOTHING)
    if dry_run:
        tell_json({"tickets": len(ids)}) if as_json else show(f"{len(ids):,} tickets would be sent back")
        return
    confirm(f"Send {len(ids):,} tickets back to {settings.tickets.topic}?", yes=yes)

    async def start(service: Service) -> Replay:
        service.app.declare(settings.tickets.topic)
        return await service.replay(replace(asked, ids=ids), actor=actor(), rate=pace, reason="tickets republish")

    campaign(start, patience, as_json=as_json, settings=on_mongodb(settings))


def _relay(limit: int | None, dry_run: bool, settings: Settings, *, yes: bool, as_json: bool) -> None:
    if dry_run:
        raise Stopped("--dry-run counts what is in MongoDB: leave --from-topic out")
    own = settings.tickets
    group = f"{own.group}-republish"
    confirm(f"Send the dead tickets on {own.dlq_topic} back to {own.topic}?", yes=yes)
    relay = Relay(kafka_options(own, group), own.dlq_topic, own.topic, group=group)
    done = asyncio.run(relay.run(limit=limit))
    stubs = f"; {done.stubs:,} were too large for the topic, and are in MongoDB only" if done.stubs else ""
    tell_json(done) if as_json else show(f"{done.sent:,} tickets sent back{stubs}")


@tickets.command("purge")
@click.option(
    "--older-than", type=span, default="90d", show_default=True, metavar="DURATION", help="Dead for longer than this."
)
@with_settings
@yes
@as_json
@common
def purge(older_than: timedelta, settings: Settings, yes: bool, as_json: bool) -> None:
    """Delete dead tickets from MongoDB for good. Nothing does so by itself."""
    from datetime import UTC, datetime

    asked = Query(sources=(settings.tickets.topic,), before=datetime.now(UTC) - older_than)
    count = _ask(settings, lambda service: service.count(asked))
    if not count:
        raise Stopped("no dead ticket is that old: nothing was deleted", NOTHING)
    confirm(f"Delete {count:,} dead tickets for good?", yes=yes)
    gone = _ask(settings, lambda service: service.purge(asked, actor=actor()))
    tell_json({"deleted": gone}) if as_json else show(f"{gone:,} dead tickets deleted")
