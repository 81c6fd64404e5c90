"""`redrive collect`: dead messages that lie in a broker become letters."""

from __future__ import annotations

import glob
import logging
import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import click
from msgspec import Struct

from redrive.access.actors import Actor
from redrive.app import Redrive
from redrive.cli.apps import find_app
from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import letters_said, plain, say, tell_json
from redrive.cli.session import actor, loaded
from redrive.collect.collector import Collector, Reader
from redrive.collect.destinations import Destinations, LettersNotAllowed, allow_kept, confined, named_after
from redrive.collect.formats import by_topic, mixed, opened
from redrive.forensics.ways_back import OTHERS
from redrive.registry import open_transport, require_transport
from redrive.service import Service
from redrive.service.acting import acts
from redrive.service.finding import SourceFinder
from redrive.systems.use import formats
from redrive.transports.base import Transport
from redrive.worker import run_on_fast_loop, stop_on_signals

GROUP = "redrive-collect"
_OPTIONS = {
    "amqp": {"declare": "no", "redeliveries": "ignore"},
    "kafka": {"group": GROUP, "consumer.enable.partition.eof": "true"},
    "sqs": {"create": "no", "wait": "1s"},
}
_NAMES, _LONGEST_NAME = 5, 100  # of the sources that are told
_ALIKE = {"amqps": "amqp", "kafka+ssl": "kafka"}


def _formats_said() -> str:
    return "; ".join(f"{name}, {format.about}" for name, format in formats().items())


@click.command()
@click.argument("url", metavar="URL/NAME")
@click.option("--follow", is_flag=True, help="Go on when everything that lies there is collected, until Ctrl-C.")
@click.option("--source", default=None, help="Where a replay sends them, whatever a message says itself.")
@click.option(
    "--allow-source",
    "allowed",
    multiple=True,
    metavar="PATTERN",
    help="A place that messages may name themselves, such as 'orders.*'. [setting: collect.sources]",
)
@click.option("--app", "target", metavar="MODULE:APP", help="Messages may name the sources of this app, too.")
@click.option("--transport", default=None, help="The transport that a replay uses. [that of the form, or default]")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(formats())),
    help=f"What lies there, where it does not say so itself: {_formats_said()}.",
)
@as_json
@common
def collect(
    url: str,
    follow: bool,
    source: str | None,
    allowed: tuple[str, ...],
    target: str | None,
    transport: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Bring a dead-letter topic of Kafka, or a dead-letter queue of RabbitMQ or Amazon SQS, into the store.

    A message is acknowledged when its letter is durable. What Spring, Kafka Connect, RabbitMQ, MassTransit,
    NServiceBus, Lambda, SNS, EventBridge and Redrive say of the failure is understood, and so is what the systems
    know; what says nothing is kept as it is.

    A message that names a source which nobody has declared or allowed is kept, and not sent back until --allow-source,
    in the same call once more, allows it. Declared are the sources of --app and of the workers of this store, and what
    the topic or queue is named after.

    \b
    redrive collect 'kafka://host:9092/orders.DLT?group=collector'
    redrive collect amqp://host/%2F/q.orders.dlq
    redrive collect 'sqs:///orders-dlq?region=eu-central-1'
    """
    address, name = _taken_apart(url)
    require_transport(address)
    reading = _reader(address, name, transport, source, form)
    listed = (*allowed, *loaded().settings.collect.sources)
    app_sources = () if target is None else find_app(target).sources
    report = run_on_fast_loop(_collect(address, name, reading, source, listed, app_sources, follow))
    if as_json:
        tell_json({"collected": report.collected, "allowed": report.allowed, "not_allowed": report.not_allowed})
    else:
        _tell(report)


class Reading(Struct, frozen=True):
    """How what lies there is read."""

    read: Reader
    transports: Collection[str]  # that its letters may go back through
    prepare: Callable[[Any], Awaitable[None]] | None = None  # what it has to ask its broker before
    vouched: Collection[str] = ()  # the sources of what lies there, as the broker or the reader itself says


class Report(Struct, frozen=True):
    """What was collected."""

    collected: int
    allowed: int  # that were kept before, and can be sent back now
    not_allowed: Mapping[str, int]  # source that a record names -> letters that are kept and cannot be sent back


async def _collect(
    address: str,
    name: str,
    reading: Reading,
    source: str | None,
    listed: Collection[str],
    declared: Collection[str],
    follow: bool,
) -> Report:
    async with Redrive(settings=loaded().settings) as app:
        _log_trouble(app)
        known = {*declared, *await SourceFinder(app).workers(), *named_after(name)}
        destinations = Destinations(source, listed, known, reading.vouched)
        broker = open_transport(address, clock=app.clock, lease=app.settings.lease)
        try:
            return await _collect_from(
                Service(app), broker, name, reading, destinations, listed, source=source, follow=follow, actor=actor()
            )
        finally:
            await broker.aclose()


@acts("collect")
async def _collect_from(
    service: Service,
    broker: Transport,
    name: str,
    reading: Reading,
    destinations: Destinations,
    listed: Collection[str],
    *,
    source: str | None,
    follow: bool,
    actor: Actor,
) -> Report:
    app = service.app
    await broker.check()
    if reading.prepare is not None:
        await reading.prepare(broker)
    held = LettersNotAllowed()
    collector = Collector(
        broker,
        name,
        confined(reading.read, destinations),
        app.store,
        events=app.events,
        clock=app.clock,
        lease=app.settings.lease,
        stored=held.note,
    )
    stop_on_signals(collector.stop)
    allowed = await allow_kept(app.store, destinations, reading.transports, app.clock.now())
    collected = await collector.run(follow=follow)
    may = f"; allowed are {', '.join(listed)}" if listed else ""
    kept = f"; {letters_said(allowed)} kept before may go back" if allowed else ""
    await service.note(actor, "collect", f"{letters_said(collected)} from {name}{may}{kept}")
    return Report(collected, allowed, held.counts)


def _tell(report: Report) -> None:
    say(f"{letters_said(report.collected)} collected")
    if report.allowed:
        say(f"{letters_said(report.allowed)} that had been kept can be sent back now: their source is allowed")
    if not report.not_allowed:
        return
    names = list(report.not_allowed)
    said = [f"{plain(name)[:_LONGEST_NAME]} ({count:,})" for name, count in report.not_allowed.items()][:_NAMES]
    more = " and others" if len(names) > _NAMES else ""
    say(
        f"{letters_said(sum(report.not_allowed.values()))} of them cannot be sent back yet: nobody has allowed the "
        f"source that the message itself names: {', '.join(said)}{more}."
    )
    usable = [name for name in names[:_NAMES] if name != OTHERS and name.isprintable() and len(name) <= _LONGEST_NAME]
    if usable:
        options = shlex.join(word for name in usable for word in ("--allow-source", glob.escape(name)))
        say(f"If they may go there, run this again with {options}")


def _log_trouble(app: Redrive) -> None:
    from redrive.forensics.redact import Redactor
    from redrive.telemetry.logs import log_events, setup_logs

    setup_logs(app.settings.logs.level, app.settings.logs.format, redactor=Redactor.of(app.settings.redact))
    logging.getLogger("pika").setLevel(logging.ERROR)  # what matters of it, we say ourselves
    log_events(app.events, Redactor.of(app.settings.redact))


def _taken_apart(url: str) -> tuple[str, str]:
    """Split a URL into the broker's and the topic or queue, which is the last part of the path."""
    parts = urlsplit(url)
    if not parts.scheme or not (parts.netloc or parts.scheme == "sqs"):
        raise Stopped(f"{url!r} is no URL of a broker: write it like kafka://host:9092/orders.DLT")
    path, _, name = parts.path.rpartition("/")
    if not name:
        raise Stopped(f"{parts.scheme}://…: name the topic or queue at the end, as in kafka://host:9092/orders.DLT")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = _OPTIONS.get(_ALIKE.get(parts.scheme, parts.scheme), {})
    address = parts._replace(path=path or "/", query=urlencode({**ours, **given}))
    return f"{parts.scheme}://{urlunsplit(address._replace(scheme='')).removeprefix('//')}", unquote(name)


def _reader(address: str, name: str, transport: str | None, source: str | None, form: str | None) -> Reading:
    scheme = address.partition("://")[0]
    known = {format.name: format for format in formats().values() if scheme in format.schemes}
    if form is not None and form not in known:
        raise Stopped(f"--format {form} is for {'://, '.join(formats()[form].schemes)}://: leave it out")
    format = known[form] if form is not None else by_topic(known.values(), name)
    if format is not None:
        read = opened(format, name, transport, source)
        return Reading(read, {transport or format.transport}, vouched=getattr(read, "vouched", ()))
    other = _plain_reader(scheme, name, transport, source)
    return Reading(
        mixed(known.values(), other, name, transport, source),
        {transport} if transport else {"default", *(format.transport for format in known.values())},
        getattr(other, "prepare", None),
        getattr(other, "vouched", ()),
    )


def _plain_reader(scheme: str, name: str, transport: str | None, source: str | None) -> Reader:
    match scheme:
        case "kafka" | "kafka+ssl":
            from redrive.collect.kafka import KafkaReader

            return KafkaReader(name, transport=transport or "default", source=source)
        case "amqp" | "amqps":
            from redrive.collect.dotnet import DotnetReader
            from redrive.collect.rabbitmq import RabbitReader

            rabbit = RabbitReader(name, transport=transport or "default", source=source)
            return DotnetReader(rabbit, name, source=source)
        case "sqs":
            from redrive.collect.sqs import SqsReader

            return SqsReader(name, transport=transport or "default", source=source)
    read = [each for format in formats().values() for each in format.schemes]
    schemes = ", ".join(f"{each}://" for each in dict.fromkeys(["kafka", "kafka+ssl", "amqp", "amqps", "sqs", *read]))
    raise Stopped(f"{name!r} of {scheme}:// cannot be collected from: what is collected from are {schemes}")
