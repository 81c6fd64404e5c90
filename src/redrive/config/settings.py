"""Every setting, with its default, the values it takes and what it is for: the one table of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Struct, field
from msgspec.structs import fields

from redrive.config.durations import spoken
from redrive.forensics.secrets import hidden_url

MIB = 1 << 20
_TICK = timedelta(milliseconds=1)


class About(Struct, frozen=True):
    """What a setting is for, in one line, and the bounds of its values (of a text: of its length)."""

    text: str
    least: int | timedelta | None = None
    most: int | timedelta | None = None
    choices: tuple[str, ...] = ()
    is_size: bool = False
    is_secret: bool = False  # URLs with keys in them: shown without


_TRANSPORT = About("The URL of that transport; name as many as you need, `default` serves all others", least=1)


class Redaction(Struct, frozen=True, kw_only=True):
    """What counts as a secret where letters are shown."""

    defaults: Annotated[bool, About("Mask the secrets that Redrive knows by itself")] = True
    keys: Annotated[tuple[str, ...], About("More keys whose values are masked")] = ()
    patterns: Annotated[tuple[str, ...], About("Regular expressions of more texts that are masked")] = ()


class Admin(Struct, frozen=True, kw_only=True):
    """Where the API and the console answer."""

    host: Annotated[str, About("The address that `redrive up` listens on", least=1)] = "127.0.0.1"
    port: Annotated[int, About("Its port; 0 takes a free one", least=0, most=65_535)] = 8321


class Logs(Struct, frozen=True, kw_only=True):
    """What is logged, and how."""

    level: Annotated[
        str, About("The least important line that is logged", choices=("debug", "info", "warning", "error"))
    ] = "info"
    format: Annotated[
        str, About("For people or for programs; auto looks for a terminal", choices=("auto", "console", "json"))
    ] = "auto"


class Retention(Struct, frozen=True, kw_only=True):
    """How long letters are kept."""

    ttl: Annotated[timedelta | None, About("Letters older than this are pruned", least=_TICK)] = None
    max_letters: Annotated[int | None, About("Past this many, the oldest letters are pruned", least=1)] = None
    export: Annotated[str | None, About("The file that letters are written to before they are pruned", 1)] = None


class Upkeep(Struct, frozen=True, kw_only=True):
    """The work in the background: automatic retries, rescue, pruning."""

    interval: Annotated[timedelta, About("How often due letters are looked for", least=_TICK)] = timedelta(seconds=1)
    lease: Annotated[timedelta, About("How long one processor may hold a letter", least=_TICK)] = timedelta(minutes=1)
    parallel: Annotated[int, About("How many letters are sent back at once", least=1, most=10_000)] = 100
    prune_every: Annotated[timedelta, About("How often retention is applied", least=_TICK)] = timedelta(minutes=1)


class Email(Struct, frozen=True, kw_only=True):
    """The e-mail system (`redrive email`): its queue, its dead letters, its fairness, its sender."""

    redis: Annotated[str, About("The Redis of the e-mail system: jobs and dead letters", least=1)] = (
        "redis://127.0.0.1:6379/0"
    )
    queue: Annotated[str, About("The queue of jobs", least=1)] = "email:send"
    dlq: Annotated[str, About("The sorted set of its dead letters", least=1)] = "email:send:dlq"
    sender: Annotated[str, About("Who delivers: smtp://, smtps:// or ses://region", least=1)] = "smtp://localhost:25"
    attempts: Annotated[int, About("How often a job is tried", least=1)] = 5
    base_delay: Annotated[timedelta, About("The first delay between attempts; it doubles", least=_TICK)] = timedelta(
        seconds=1
    )
    max_delay: Annotated[timedelta, About("The longest delay between attempts", least=_TICK)] = timedelta(minutes=1)
    jitter: Annotated[int, About("How much chance there is in a delay, in percent", least=0, most=100)] = 25
    timeout: Annotated[timedelta, About("How long one attempt may take", least=_TICK)] = timedelta(minutes=2)
    ttl: Annotated[timedelta, About("A job that is not sent by then is buried", least=_TICK)] = timedelta(days=1)
    concurrency: Annotated[int, About("How many jobs a worker sends at once", least=1, most=10_000)] = 5
    rate: Annotated[int | None, About("At most so many jobs in each `rate_per`, over all workers", least=1)] = 100
    rate_per: Annotated[timedelta, About("The span that `rate` counts in", least=_TICK)] = timedelta(minutes=1)
    adaptive: Annotated[bool, About("Go slower while the server throttles, and recover slowly")] = False
    fair: Annotated[bool, About("Companies take turns")] = True
    batch: Annotated[int, About("At most so many jobs in a row for a company while another waits", least=1)] = 3
    tiers: Annotated[tuple[str, ...], About("Tiers of companies and the turns they get: `gold=3`")] = ()
    weights: Annotated[tuple[str, ...], About("Companies and their tier, or the turns they get: `acme=gold`")] = ()
    dlq_ttl: Annotated[timedelta, About("How long a dead letter is kept", least=_TICK)] = timedelta(days=7)
    dlq_max_size: Annotated[int, About("Past this many, the oldest dead letters are exported and trimmed", 1)] = 10_000
    dlq_export: Annotated[str, About("The file they are written to before they are trimmed", least=1)] = (
        "email-dlq.jsonl"
    )
    cooldown: Annotated[
        timedelta | None, About("Reprocess by itself what ran out of attempts, after this time", least=_TICK)
    ] = None
    cooldown_times: Annotated[int, About("How often it is reprocessed by itself", least=1)] = 1


class Tickets(Struct, frozen=True, kw_only=True):
    """The ticket worker on Kafka (`redrive tickets`): its topics, its counters, its forensics."""

    kafka: Annotated[str, About("The Kafka of the tickets", least=1)] = "kafka://127.0.0.1:9092"
    redis: Annotated[str, About("Where retries are counted: redis://…, sqlite:///… or memory://", 1)] = (
        "redis://127.0.0.1:6379/0"
    )
    mongodb: Annotated[str, About("The MongoDB that keeps dead tickets", least=1)] = (
        "mongodb://127.0.0.1:27017/neural_hive"
    )
    topic: Annotated[str, About("The topic of tickets", least=1)] = "execution.tickets"
    dlq_enabled: Annotated[bool, About("Publish dead tickets to the DLQ topic; otherwise they are letters only")] = True
    dlq_topic: Annotated[str, About("The topic of dead tickets", least=1)] = "execution.tickets.dlq"
    group: Annotated[str, About("The consumer group of workers; the DLQ's is the same with `-dlq`", least=1)] = (
        "worker-agents"
    )
    max_retries: Annotated[int, About("How often a ticket may fail before it is dead", least=1, most=1000)] = 3
    partitions: Annotated[int, About("Partitions of the topic of tickets, if we create it", 1, 10_000)] = 6
    replicas: Annotated[int, About("Replicas of topics that we create", least=1, most=100)] = 3
    concurrency: Annotated[int, About("How many tickets a worker handles at once", least=1, most=10_000)] = 50


class Files(Struct, frozen=True, kw_only=True):
    """The file pipeline on RabbitMQ (`redrive files`): its broker, its retries, its parked messages."""

    url: Annotated[str | None, About("The RabbitMQ of the file pipeline: amqp://…", least=1)] = None
    management: Annotated[str | None, About("Its management API; by default port 15672 of the same host", 1)] = None
    delay: Annotated[timedelta, About("How long a failed message waits in q.X.retry", least=_TICK)] = timedelta(
        seconds=15
    )
    retries: Annotated[int, About("How often a message is retried before it is parked", least=0, most=1000)] = 3
    kind: Annotated[str, About("The kind of its queues", choices=("classic", "quorum"))] = "classic"
    concurrency: Annotated[int, About("How many messages of a queue a worker handles at once", 1, 10_000)] = 10
    prefetch: Annotated[int, About("How many messages the broker sends ahead", least=1, most=65_535)] = 200
    queues: Annotated[tuple[str, ...], About("The parked queues that may be looked at and re-driven")] = tuple(
        f"q.{name}.dlq"
        for name in ("upload.commands", "validator", "thumbnail", "extractor", "projection", "notification", "audit")
    )


class Pipeline(Struct, frozen=True, kw_only=True):
    """The pipeline of gRPC modules (`redrive pipeline`): its transport, its graph, how modules are found."""

    transport: Annotated[
        str, About("What streams travel on: kafka://…, or sqlite:///file.db on one machine", least=1)
    ] = "kafka://127.0.0.1:9092"
    graph: Annotated[str | None, About("The graph, for `redrive up`: a YAML file", least=1)] = None
    group: Annotated[str, About("The consumer group of engines", least=1)] = "pipeline-engine"
    consul: Annotated[str | None, About("The Consul that knows the modules: http://host:8500", least=1)] = None
    consul_keep: Annotated[timedelta, About("How long its last answer stands while it is away", least=_TICK)] = (
        timedelta(minutes=1)
    )
    concurrency: Annotated[int, About("How many streams of a node an engine works on at once", 1, 10_000)] = 64
    partitions: Annotated[int, About("Partitions of topics that we create", least=1, most=10_000)] = 6
    tls_ca: Annotated[str | None, About("Modules are called with TLS, and checked by this CA (PEM)", least=1)] = None
    tls_cert: Annotated[str | None, About("The certificate that engines show (PEM)", least=1)] = None
    tls_key: Annotated[str | None, About("Its key (PEM)", least=1)] = None


class Alerts(Struct, frozen=True, kw_only=True):
    """What people are told, by whom, and when."""

    urls: Annotated[
        tuple[str, ...],
        About(
            "Who is told: alertmanager+http://…, pagerduty://KEY, webhook+https://…, any URL of apprise", is_secret=True
        ),
    ] = ()
    severity: Annotated[
        str, About("The least severity that is told and kept", choices=("info", "warning", "error", "critical"))
    ] = "warning"
    repeat: Annotated[timedelta, About("How long until an open incident is told again", least=_TICK)] = timedelta(
        hours=4
    )
    interval: Annotated[timedelta, About("How often the rules are looked at", least=_TICK)] = timedelta(seconds=10)
    resolve_after: Annotated[timedelta, About("How long a condition is gone before it resolves", least=_TICK)] = (
        timedelta(minutes=2)
    )
    window: Annotated[timedelta, About("The span of time that rates are counted over", least=_TICK)] = timedelta(
        minutes=5
    )
    grace: Annotated[timedelta, About("How long a stopping process goes on telling")] = timedelta(seconds=5)
    console: Annotated[str | None, About("The address of the console, for links in alerts", least=1)] = None
    exhausted: Annotated[int | None, About("So many exhausted letters of one group are an alert", least=1)] = 1
    new_group: Annotated[bool, About("Whether a cause that was never seen before is an alert")] = True
    growth: Annotated[int | None, About("So many new letters of one group in the window are an alert", least=1)] = 100
    success: Annotated[
        int | None, About("Fewer retries than this that succeed, in percent, are an alert", least=1, most=100)
    ] = 50
    success_of: Annotated[int, About("Of how many retries in the window, at least", least=1)] = 20
    utilisation: Annotated[int | None, About("A queue that is so full, in percent, is an alert", least=1, most=100)] = (
        80
    )
    backend_down: Annotated[timedelta | None, About("A backend that is away for so long is an alert", least=_TICK)] = (
        timedelta(minutes=1)
    )
    breaker: Annotated[bool, About("Whether an open circuit breaker is an alert")] = True


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, valid: `redrive.config.load` makes them from a file and the environment."""

    store: Annotated[str, About("The URL of the database that keeps letters", least=1)] = "sqlite:///redrive.db"
    transports: Annotated[dict[str, str], _TRANSPORT] = field(
        default_factory=lambda: {"default": "sqlite:///redrive.db"}
    )
    worker: Annotated[str, About("The name of this process in failures; empty makes it host:pid")] = ""
    version: Annotated[str, About("The version of your own code, noted in failures")] = ""
    concurrency: Annotated[
        int, About("How many messages of a source a worker handles at once", least=1, most=10_000)
    ] = 10
    batch: Annotated[int, About("How many messages are received and settled at once", least=1, most=10_000)] = 100
    lease: Annotated[timedelta, About("How long a message is ours before another worker may have it", least=_TICK)] = (
        timedelta(minutes=1)
    )
    grace: Annotated[timedelta, About("How long a stopping worker lets its handlers finish")] = timedelta(seconds=25)
    timeout: Annotated[timedelta, About("How long one attempt may take", least=_TICK)] = timedelta(minutes=5)
    body_limit: Annotated[int, About("The largest body that is accepted", least=1, is_size=True)] = 16 * MIB
    redact: Redaction = Redaction()
    admin: Admin = Admin()
    logs: Logs = Logs()
    retention: Retention = Retention()
    upkeep: Upkeep = Upkeep()
    alerts: Alerts = Alerts()
    email: Email = Email()
    files: Files = Files()
    tickets: Tickets = Tickets()
    pipeline: Pipeline = Pipeline()

    @property
    def worker_name(self) -> str:
        """The name of this process: as set, or its host and its id."""
        return self.worker or f"{socket.gethostname()}:{os.getpid()}"


class Key(Struct, frozen=True):
    """One setting, as data: for the loader, for docs and for `redrive doctor`."""

    path: str  # `admin.port`
    kind: type
    default: Any
    about: About
    optional: bool = False

    @property
    def environ(self) -> str:
        """The name it has in the environment."""
        return "REDRIVE_" + self.path.upper().replace(".", "_").replace("-", "_")

    @property
    def takes(self) -> str:
        """The values it takes, in words."""
        if self.about.choices:
            return f"one of {', '.join(self.about.choices)}"
        noun = "a size such as '16MiB', or a number of bytes" if self.about.is_size else _NOUNS[self.kind]
        return f"{noun}{self._range()}{', or none' if self.optional else ''}"

    def _range(self) -> str:
        least, most = self.about.least, self.about.most
        if self.kind is str or least is None:
            return ""
        return f", {written(least)} or more" if most is None else f" from {written(least)} to {written(most)}"


_NOUNS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    timedelta: "a duration such as '250ms', '5s' or '1m30s'",
    tuple: "a list of texts (in the environment: with commas between them)",
}


class Described(Struct, frozen=True):
    """One setting as it stands: everything in words."""

    path: str
    environ: str
    value: str
    source: str  # `default`, `environment`, or the file
    default: str
    takes: str
    about: str


@cache
def keys() -> tuple[Key, ...]:
    """Every setting, in the order in which they stand above."""
    return tuple(_keys(Settings, ""))


def transport_key(name: str) -> Key:
    """The setting of the transport with that name."""
    return Key(f"transports.{name}", str, None, _TRANSPORT)


def describe(settings: Settings, sources: Mapping[str, str]) -> tuple[Described, ...]:
    """Every setting with its value and where it came from. Redact before showing: only URLs of notifiers are masked."""
    extra = (transport_key(name) for name in settings.transports if name != "default")
    return tuple(_described(key, settings, sources) for key in (*keys(), *extra))


def written(value: object) -> str:
    """A value as it is written in a file or the environment."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case timedelta():
            return spoken(value)
        case tuple():
            return ",".join(map(str, value))
    return str(value)


def value_at(settings: Settings, path: str) -> Any:
    """The value of `admin.port` or `transports.default`."""
    value: Any = settings
    for name in path.split(".", 1):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


def _described(key: Key, settings: Settings, sources: Mapping[str, str]) -> Described:
    value, source = value_at(settings, key.path), sources.get(key.path, "default")
    if key.about.is_secret:
        value = tuple(map(hidden_url, value))
    return Described(key.path, key.environ, written(value), source, written(key.default), key.takes, key.about.text)


def _keys(struct: type[Struct], prefix: str) -> Iterator[Key]:
    hints = get_type_hints(struct, include_extras=True)
    defaults = struct()
    for one in fields(struct):
        hint, default = hints[one.name], getattr(defaults, one.name)
        if isinstance(default, dict):
            yield from (Key(f"{one.name}.{name}", str, value, _TRANSPORT) for name, value in default.items())
        elif isinstance(default, Struct):
            yield from _keys(type(default), f"{one.name}.")
        else:
            yield _key(f"{prefix}{one.name}", hint, default)


def _key(path: str, hint: Any, default: Any) -> Key:
    kind, about = get_args(hint)[:2]
    optional = get_origin(kind) is UnionType
    kind = get_args(kind)[0] if optional else kind
    return Key(path, get_origin(kind) or kind, default, about, optional)
