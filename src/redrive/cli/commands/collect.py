"""`redrive collect`: dead messages that lie in a broker become letters."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import click

from redrive.app import Redrive
from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import letters_said, say, tell_json
from redrive.cli.session import loaded
from redrive.collect.collector import Collector, Reader
from redrive.collect.destinations import confined
from redrive.collect.formats import by_topic, mixed, opened
from redrive.registry import open_transport, require_transport
from redrive.systems.use import formats
from redrive.worker import run_on_fast_loop, stop_on_signals

GROUP = "redrive-collect"
_OPTIONS = {
    "amqp": {"declare": "no", "redeliveries": "ignore"},
    "kafka": {"group": GROUP, "consumer.enable.partition.eof": "true"},
    "sqs": {"create": "no", "wait": "1s"},
}
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
    transport: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Bring a dead-letter topic of Kafka, or a dead-letter queue of RabbitMQ or Amazon SQS, into the store.

    A message is acknowledged when its letter is durable. What Spring, Kafka Connect, RabbitMQ, MassTransit,
    NServiceBus, Lambda, SNS, EventBridge and Redrive say of the failure is understood, and so is what the systems
    know; what says nothing is kept as it is.

    \b
    redrive collect 'kafka://host:9092/orders.DLT?group=collector'
    redrive collect amqp://host/%2F/q.orders.dlq
    redrive collect 'sqs:///orders-dlq?region=eu-central-1'
    """
    address, name = _taken_apart(url)
    require_transport(address)
    read, prepare = _reader(address, name, transport, source, form)
    read = confined(read, source, (*allowed, *loaded().settings.collect.sources))
    count = run_on_fast_loop(_collect(address, name, read, prepare, follow))
    tell_json({"collected": count}) if as_json else say(f"{letters_said(count)} collected")


Prepare: TypeAlias = Callable[[Any], Awaitable[None]] | None
"""What a reader has to ask its broker before it reads."""


async def _collect(address: str, name: str, read: Reader, prepare: Prepare, follow: bool) -> int:
    async with Redrive(settings=loaded().settings) as app:
        broker = open_transport(address, clock=app.clock, lease=app.settings.lease)
        collector = Collector(
            broker, name, read, app.store, events=app.events, clock=app.clock, lease=app.settings.lease
        )
        _log_trouble(app)
        stop_on_signals(collector.stop)
        try:
            await broker.check()
            if prepare is not None:
                await prepare(broker)
            return await collector.run(follow=follow)
        finally:
            await broker.aclose()


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


def _reader(
    address: str, name: str, transport: str | None, source: str | None, form: str | None
) -> tuple[Reader, Prepare]:
    scheme = address.partition("://")[0]
    known = {format.name: format for format in formats().values() if scheme in format.schemes}
    if form is not None and form not in known:
        raise Stopped(f"--format {form} is for {'://, '.join(formats()[form].schemes)}://: leave it out")
    format = known[form] if form is not None else by_topic(known.values(), name)
    if format is not None:
        return opened(format, name, transport, source), None
    plain = _plain_reader(scheme, name, transport, source)
    return mixed(known.values(), plain, name, transport, source), getattr(plain, "prepare", None)


def _plain_reader(scheme: str, name: str, transport: str | None, source: str | None) -> Reader:
    match scheme:
        case "kafka" | "kafka+ssl":
            from redrive.collect.kafka import KafkaReader

            return KafkaReader(name, transport=transport or "default", source=source)
        case "amqp" | "amqps":
            from redrive.collect.dotnet import DotnetReader
            from redrive.collect.rabbitmq import RabbitReader

            plain = RabbitReader(name, transport=transport or "default", source=source)
            return DotnetReader(plain, name, source=source)
        case "sqs":
            from redrive.collect.sqs import SqsReader

            return SqsReader(name, transport=transport or "default", source=source)
    read = [each for format in formats().values() for each in format.schemes]
    schemes = ", ".join(f"{each}://" for each in dict.fromkeys(["kafka", "kafka+ssl", "amqp", "amqps", "sqs", *read]))
    raise Stopped(f"{name!r} of {scheme}:// cannot be collected from: what is collected from are {schemes}")
