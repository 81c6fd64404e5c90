"""`redrive pipeline`: a graph of gRPC modules on Kafka.

What needs a library of the extra is imported where it is used, so that the help needs none.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from redrive.app import Redrive
from redrive.cli.confirm import confirm
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.follow import Patience, follow_replay_here, waiting
from redrive.cli.lazy import common
from redrive.cli.options import as_json, moment, rate, span, yes
from redrive.cli.output import line, show, table, tell_json
from redrive.cli.scrape import Place, beside, scraped
from redrive.cli.session import Needs, actor, ask_store, loaded
from redrive.config.settings import Settings
from redrive.flow.replay import Replay
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.worker import run_on_fast_loop, work

if TYPE_CHECKING:
    from redrive.systems.pipeline.dlq import Chosen
    from redrive.systems.pipeline.engine import Engine
    from redrive.systems.pipeline.graph import Graph, Node
    from redrive.systems.pipeline.module import Module
    from redrive.systems.pipeline.trace import Trace

T = TypeVar("T")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
@common
def pipeline() -> None:
    """Streams through a graph of gRPC modules, with one DLQ for each node: on Kafka, or on one machine on SQLite.

    Settings are those of the section `pipeline`: `redrive config` shows them. Where a command needs the graph and is
    not given one, it takes that of pipeline.graph.

    \b
    redrive pipeline topics graph.yaml              create the topics of the graph
    redrive pipeline module parse:module            serve a module, and register it in Consul
    redrive pipeline engine graph.yaml              let streams travel
    redrive pipeline send graph.yaml report.pdf     a file as a new stream
    redrive pipeline trace STREAM                   where it has been
    redrive pipeline replay NODE --error-type TIMEOUT
    """


def with_graph(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option --graph; the command gets it as `graph`, and the settings as `settings`."""

    @functools.wraps(command)
    def called(graph: Path | None, **options: Any) -> Any:
        settings = loaded().settings
        path = graph or settings.of(PipelineSettings).graph
        if path is None:
            raise Stopped("which graph? Give --graph FILE, or set pipeline.graph (REDRIVE_PIPELINE_GRAPH)")
        return command(graph=_loaded(path), settings=settings, **options)

    return click.option("--graph", type=_FILE, help="The graph. [setting: pipeline.graph]")(called)


def _loaded(path: str | Path) -> Graph:
    from redrive.systems.pipeline.graph import Graph

    return Graph.load(path)


# -- processes ---------------------------------------------------------------------------------------------------------


@pipeline.command("engine")
@click.argument("file", metavar="GRAPH", type=_FILE)
@click.option("--node", "nodes", multiple=True, help="Work on this node only, by id or name. Repeatable.")
@click.option("--create-topics", is_flag=True, help="Create the topics that are missing first.")
@click.option("--grace", type=span, metavar="25s", help="How long calls may finish after Ctrl-C. [setting: grace]")
@scraped
@common
def engine(
    file: Path, nodes: tuple[str, ...], create_topics: bool, grace: timedelta | None, scrape: Place | None
) -> None:
    """Let streams travel through the graph until Ctrl-C; a second Ctrl-C stops at once, and loses nothing.

    Any number of engines share the work of a graph.
    """
    settings = loaded().settings
    _log_to(settings)
    graph = _loaded(file)
    run_on_fast_loop(_run(graph, settings, nodes, create_topics, grace, scrape))


async def _run(
    graph: Graph,
    settings: Settings,
    nodes: tuple[str, ...],
    create_topics: bool,
    grace: timedelta | None,
    scrape: Place | None,
) -> None:
    from redrive.systems.pipeline.engine import Engine

    made = Engine(graph, settings, nodes=nodes or None)
    try:
        _log_events(settings, made)
        await made.transport.check()
        if create_topics:
            await made.create_topics()
        await work(made.app, grace=grace, beside=_scraped(made, scrape))
    finally:
        await made.aclose()


def _scraped(made: Engine, scrape: Place | None) -> Any:
    if scrape is None:
        return ()
    from redrive.systems.pipeline.metrics import measured

    return beside(made.app, scrape, measured(made))


def _log_to(settings: Settings) -> None:
    from redrive.forensics.redact import Redactor
    from redrive.telemetry.logs import setup_logs

    setup_logs(settings.logs.level, settings.logs.format, redactor=Redactor.of(settings.redact))
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _log_events(settings: Settings, made: Engine) -> None:
    from redrive.forensics.redact import Redactor
    from redrive.telemetry.logs import log_events

    log_events(made.app.events, Redactor.of(settings.redact))


@pipeline.command("module")
@click.argument("target", metavar="FILE:MODULE")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address it serves on, and is found at.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Its port. [by default a free one]")
@click.option("--consul", metavar="URL", help="Register there. [setting: pipeline.consul]")
@click.option("--tls-cert", type=_FILE, help="Its certificate (PEM).")
@click.option("--tls-key", type=_FILE, help="The key of it (PEM).")
@click.option("--tls-ca", type=_FILE, help="Let in only callers with a certificate of this CA (PEM).")
@common
def module(
    target: str,
    host: str,
    port: int,
    consul: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
) -> None:
    """Serve a module until Ctrl-C, with a health check; with Consul, register it there.

    MODULE is a redrive.systems.pipeline.Module in your file.
    """
    from redrive.systems.pipeline.wire import Tls

    settings = loaded().settings
    _log_to(settings)
    tls = Tls(**{name: str(path) for name, path in (("cert", tls_cert), ("key", tls_key), ("ca", tls_ca)) if path})
    found = _module(target)
    found.run(
        host,
        port,
        consul=consul or settings.of(PipelineSettings).consul,
        tls=tls,
        started=lambda address: click.echo(f"module {found.name} on {address}"),
    )


def _module(target: str) -> Module:
    from redrive.systems.pipeline.module import Module

    name, _, attribute = target.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(name.removesuffix(".py")), attribute or "module")
    except ModuleNotFoundError as error:
        raise Stopped(f"no module {name!r} in {Path.cwd()} or on the Python path ({error})") from error
    except AttributeError as error:
        raise Stopped(f"{name!r} has no {attribute or 'module'!r}") from error
    if not isinstance(found, Module):
        raise Stopped(f"{target} is no Module: make it with redrive.systems.pipeline.Module('name')")
    return found


# -- topics and streams ------------------------------------------------------------------------------------------------


@pipeline.command("topics")
@click.argument("file", metavar="GRAPH", type=_FILE)
@click.option("--dry-run", is_flag=True, help="Print what is wanted, and ask no broker.")
@as_json
@common
def topics(file: Path, dry_run: bool, as_json: bool) -> None:
    """Create the topics of the graph that are missing. What exists is never changed."""
    graph, settings = _loaded(file), loaded().settings
    if not dry_run:
        _with_engine(graph, settings, lambda made: made.create_topics())
    if as_json:
        tell_json({"topics": graph.topics, "partitions": settings.of(PipelineSettings).partitions})
        return
    for topic in graph.topics:
        show(topic)


@pipeline.command("send")
@click.argument("file", metavar="GRAPH", type=_FILE)
@click.argument("document", type=_FILE)
@click.option("--node", help="Begin there, by id or name. [by default where the graph begins]")
@click.option("--type", "content_type", default="application/octet-stream", show_default=True, help="What it is.")
@common
def send(file: Path, document: Path, node: str | None, content_type: str) -> None:
    """Send a file as a new stream, its content inline, and print the stream's id."""
    from redrive.systems.pipeline.pipeline_pb2 import Document

    made = Document(document_id=document.name, content_type=content_type, content=document.read_bytes())
    show(_with_engine(_loaded(file), loaded().settings, lambda engine: engine.send(made, node=node)))


def _with_engine(graph: Graph, settings: Settings, work: Callable[[Engine], Awaitable[T]]) -> T:
    """For what needs Kafka only."""
    from redrive.systems.pipeline.engine import Engine

    async def done() -> T:
        made = Engine(graph, settings, store="memory://")
        try:
            return await work(made)
        finally:
            await made.aclose()

    return asyncio.run(done())


@pipeline.command("trace")
@click.argument("stream")
@click.option("--since", type=moment, metavar="TIME", help="Look at what travelled at this time or later.")
@with_graph
@as_json
@common
def trace(stream: str, since: datetime | None, graph: Graph, settings: Settings, as_json: bool) -> None:
    """Where a stream has been: each step, and where it is now. Reads the topics, for as long as they keep it, and the
    letters of its nodes."""
    found = asyncio.run(_traced(stream, since, graph, settings))
    if as_json:
        tell_json(found)
    else:
        _show_trace(found)
    if not found.sightings:
        raise Stopped(f"no topic of the graph has a stream {stream!r}, and no letter of its nodes either", NOTHING)


async def _traced(stream: str, since: datetime | None, graph: Graph, settings: Settings) -> Trace:
    from redrive.forensics.redact import Redactor
    from redrive.systems.pipeline.streams import open_streams
    from redrive.systems.pipeline.trace import Tracer

    own = settings.of(PipelineSettings)
    async with Redrive(settings=settings) as app:
        streams = open_streams(own.transport, graph, group=own.group, clock=app.clock, lease=settings.lease)
        try:
            return await Tracer(graph, streams, lambda: app.store.letters, Redactor.of(app.settings.redact)).trace(
                stream, since=since
            )
        finally:
            await streams.aclose()


def _show_trace(found: Trace) -> None:
    steps = table("HOP", "NODE", "OUTCOME", "ATTEMPT", "TOOK", "INSTANCE", "", right=("HOP", "ATTEMPT", "TOOK"))
    for step in found.steps:
        note = line(step.error, 80) or ("a repeat, after a crash" if step.repeat else "")
        took = f"{step.seconds * 1000:.0f} ms"
        steps.add_row(str(step.hop), line(step.node), step.outcome, str(step.attempt), took, line(step.instance), note)
    if found.steps:
        show(steps)
    for seen in found.sightings:
        show(f"{seen.at:%Y-%m-%d %H:%M:%S}  {line(seen.where)}  {seen.place}  {line(seen.error, 100)}".rstrip())


# -- dead streams ------------------------------------------------------------------------------------------------------


@pipeline.command("replay")
@click.argument("node")
@click.option("--limit", type=click.IntRange(1), help="At most so many, the oldest first.")
@click.option("--since", type=moment, metavar="TIME", help="Dead at this time or later (ISO; UTC if it has no offset).")
@click.option("--error-type", type=click.Choice([str(kind) for kind in ErrorType]), help="Dead for this reason.")
@click.option(
    "--from",
    "origin",
    type=click.Choice(["letters", "topic"]),
    default="letters",
    show_default=True,
    help="Read the letters of the store, or the DLQ topic itself.",
)
@click.option("--rate", "pace", type=rate, metavar="50/s", help="At most so many a second (50, 50/s, 3000/m).")
@click.option("--dry-run", is_flag=True, help="Say how many, and send nothing.")
@waiting
@with_graph
@yes
@as_json
@common
def replay(
    node: str,
    limit: int | None,
    since: datetime | None,
    error_type: str | None,
    origin: str,
    pace: float | None,
    dry_run: bool,
    patience: Patience,
    graph: Graph,
    settings: Settings,
    yes: bool,
    as_json: bool,
) -> None:
    """Send dead streams of a node back to its input topic: exactly those that are dead now, each once.

    NODE is its id, or its name in the graph. With `--from topic` the store need not know them: what the DLQ topic has
    is sent, and remembered in the group `{pipeline.group}-replay`, so that the next call sends only what is new.
    """
    from redrive.systems.pipeline.dlq import Chosen, dead_streams
    from redrive.systems.pipeline.engine import with_pipeline

    there, settings = graph.node(node), with_pipeline(settings)
    chosen = Chosen(limit=limit, since=since, kind=error_type)
    if origin == "topic":
        _replay_topic(graph, there, chosen, settings, dry_run=dry_run, yes=yes, as_json=as_json)
        return

    async def found(service: Service) -> tuple[Query, int]:
        query = await dead_streams(service, graph, there, chosen)
        return query, await service.count(query)

    asked, count = ask_store(found, Needs.LETTERS, settings)
    some = _streams(count)
    if dry_run:
        tell_json({"node_id": there.id, "streams": count}) if as_json else show(f"{some} would be sent back")
        return
    if not count:
        raise Stopped(f"no dead stream of {there.label} matches: nothing was sent", NOTHING)
    confirm(f"Send {some} back to {there.label} ({graph.topic(there)})?", yes=yes)

    async def start(service: Service) -> Replay:
        service.app.declare(graph.topic(there), transport="pipeline")
        return await service.replay(asked, actor=actor(), rate=pace, reason=f"pipeline replay of {node}")

    follow_replay_here(start, patience, as_json=as_json, settings=settings)


def _replay_topic(
    graph: Graph, node: Node, chosen: Chosen, settings: Settings, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    from redrive.systems.pipeline.topic_replay import replay_topic

    def sent(*, dry_run: bool) -> int:
        def run(service: Service) -> Awaitable[int]:
            return replay_topic(service, graph, node, chosen, actor=actor(), dry_run=dry_run)

        return ask_store(run, Needs.NOTHING, settings)  # the store need not be there

    count = sent(dry_run=True)
    if not dry_run and not count:
        raise Stopped(f"no dead stream on {graph.dlq_topic(node)} matches: nothing was sent", NOTHING)
    if not dry_run:
        confirm(f"Send {_streams(count)} of {graph.dlq_topic(node)} back to {graph.topic(node)}?", yes=yes)
        count = sent(dry_run=False)
    does = "would be sent back" if dry_run else "sent back"
    tell_json({"node_id": node.id, "streams": count}) if as_json else show(f"{_streams(count)} {does}")


def _streams(count: int) -> str:
    return "1 stream" if count == 1 else f"{count:,} streams"
