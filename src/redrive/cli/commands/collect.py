"""`redrive collect`: dead messages that lie in a broker become letters."""

from __future__ import annotations

import functools
import logging
from datetime import datetime
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import click

from redrive.app import Redrive
from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import letters_said, say, tell_json
from redrive.cli.session import loaded
from redrive.collect.collector import Collector, Reader
from redrive.model import Letter
from redrive.registry import open_transport
from redrive.transports.base import Delivery
from redrive.worker import run_on_fast_loop, stop_on_signals

GROUP = "redrive-collect"
PIPELINE = "pipeline"


@click.command()
@click.argument("url", metavar="URL/NAME")
@click.option("--follow", is_flag=True, help="Go on when everything that lies there is collected, until Ctrl-C.")
@click.option("--source", default=None, help="Where a replay sends them, if a message does not say it itself.")
@click.option(
    "--transport", default=None, help="The transport that a replay uses. [default, or pipeline for DlqMessages]"
)
@click.option(
    "--format", "form", type=click.Choice([PIPELINE]), help="What lies there, where it does not say so itself."
)
@as_json
@common
def collect(url: str, follow: bool, source: str | None, transport: str | None, form: str | None, as_json: bool) -> None:
    """Bring a dead-letter topic of Kafka, or a dead-letter queue of RabbitMQ, into the store.

    A message is acknowledged when its letter is durable. What Spring, Kafka Connect, RabbitMQ and Redrive say of the
    failure is understood; what says nothing is kept as it is. A topic dlq.CLUSTER.NODE-UUID, or --format pipeline,
    holds DlqMessages of a pipeline's engine: their replays go through the transport `pipeline`.

    \b
    redrive collect 'kafka://host:9092/orders.DLT?group=collector'
    redrive collect amqp://host/%2F/q.orders.dlq
    """
    address, name = _taken_apart(url)
    count = run_on_fast_loop(_collect(address, name, _reader(address, name, transport, source, form), follow))
    tell_json({"collected": count}) if as_json else say(f"{letters_said(count)} collected")


async def _collect(address: str, name: str, read: Reader, follow: bool) -> int:
    async with Redrive(settings=loaded().settings) as app:
        broker = open_transport(address, clock=app.clock, lease=app.settings.lease)
        collector = Collector(
            broker, name, read, app.store, events=app.events, clock=app.clock, lease=app.settings.lease
        )
        _log_trouble(app)
        stop_on_signals(collector.stop)
        try:
            await broker.check()
            return await collector.run(follow=follow)
        finally:
            await broker.aclose()


def _log_trouble(app: Redrive) -> None:
    from redrive.forensics.redact import Redactor
    from redrive.telemetry.logs import log_events, setup_logs

    setup_logs(app.settings.logs.level, app.settings.logs.format)
    logging.getLogger("pika").setLevel(logging.ERROR)  # what matters of it, we say ourselves
    log_events(app.events, Redactor())


def _taken_apart(url: str) -> tuple[str, str]:
    """Split a URL into the broker's and the topic or queue, which is the last part of the path."""
    parts = urlsplit(url)
    path, _, name = parts.path.rpartition("/")
    if not name:
        raise Stopped(f"{parts.scheme}://…: name the topic or queue at the end, as in kafka://host:9092/orders.DLT")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = (
        {"declare": "no"}
        if parts.scheme.startswith("amqp")
        else {"group": GROUP, "consumer.enable.partition.eof": "true"}
    )
    return urlunsplit(parts._replace(path=path or "/", query=urlencode({**ours, **given}))), unquote(name)


def _reader(address: str, name: str, transport: str | None, source: str | None, form: str | None) -> Reader:
    match address.partition("://")[0]:
        case "kafka" | "kafka+ssl":
            return _kafka_reader(name, transport, source, form)
        case "amqp" | "amqps" if form is not None:
            raise Stopped(f"--format {form} is for topics of Kafka: leave it out")
        case "amqp" | "amqps":
            from redrive.collect.rabbitmq import RabbitReader

            return RabbitReader(name, transport=transport or "default", source=source)
        case scheme:
            raise Stopped(f"{scheme}:// cannot be collected from: it is kafka://, kafka+ssl://, amqp:// or amqps://")


def _kafka_reader(name: str, transport: str | None, source: str | None, form: str | None) -> Reader:
    """The reader of a topic, chosen by its name, its headers or `--format`; never by what a value looks like."""
    from redrive.collect.foreign import input_topic
    from redrive.collect.kafka import KafkaReader
    from redrive.transports.kafka.dlq import FORM

    @functools.cache
    def dead_streams() -> Reader:
        from redrive.systems.pipeline.reader import PipelineReader

        return PipelineReader(name, transport=transport or PIPELINE, source=source)

    if form == PIPELINE or input_topic(name) is not None:
        return dead_streams()
    others = KafkaReader(name, transport=transport or "default", source=source)

    def read(delivery: Delivery, now: datetime) -> Letter | None:
        return (others if delivery.message.header(FORM) is None else dead_streams())(delivery, now)

    return read
