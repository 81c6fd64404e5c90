"""What a URL of Kafka says.

    kafka://host:9092,other:9092/?group=billing
    kafka+ssl://user:password@host:9093/?group=billing&sasl.mechanisms=SCRAM-SHA-512

Ours are the options without a dot. Those with one are librdkafka's own, and given to it as they are; with `consumer.`
or `producer.` before them (`consumer.fetch.min.bytes`) to that one only.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from redrive.config.durations import duration, spoken
from redrive.drivers.reach import Server
from redrive.errors import ConfigError, UsageError, nearest

OPTIONS = ("group", "start", "static", "counters", "retry_topics", "dlq", "dlq_only", "most_open", "most_bytes")
_SERVER = re.compile(r"(?P<host>\[[0-9a-fA-F:.%\w]+\]|[^:\[\]\s,]+)(?::(?P<port>\d{1,5}))?")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Options(Struct, frozen=True, kw_only=True):
    """A URL, taken apart.

    group         the consumer group
    start         where a group that has committed nothing begins: earliest or latest
    static        a worker that has a name is known by it to its group, and has its partitions back when it is restarted
    counters      where attempts are counted: memory://, sqlite:///file.db or redis://…
    retry_topics  the delays of the retry topics, shortest first; used by policies that hold nothing
    dlq           the topic that dead messages are published to
    dlq_only      to that topic only, and not to the store too
    most_open     messages of a partition that may be finished or held beyond the first unfinished one
    most_bytes    the same in bytes
    """

    servers: str
    group: str = "redrive"
    start: str = "earliest"
    static: bool = True
    counters: str = "memory://"
    retry_topics: tuple[timedelta, ...] = ()
    dlq: str | None = None
    dlq_only: bool = False
    most_open: int = 5_000
    most_bytes: int = 64 << 20
    driver: dict[str, str] = {}

    def client(self) -> dict[str, Any]:
        """The settings of every client of librdkafka."""
        common = {name: value for name, value in self.driver.items() if not name.startswith(("consumer.", "producer."))}
        return {"bootstrap.servers": self.servers, "log.connection.close": "false", **common}

    def addresses(self) -> list[Server]:
        """The servers of the URL, one by one."""
        tls = self.client().get("security.protocol", "").upper().endswith("SSL")
        places = [_SERVER.fullmatch(server) for server in self.servers.split(",")]
        return [
            Server("Kafka", found["host"].strip("[]"), int(found["port"] or 9092), tls, "kafka", "kafka+ssl")
            for found in places
            if found is not None
        ]

    def _only(self, kind: str) -> dict[str, str]:
        return {name.removeprefix(kind): value for name, value in self.driver.items() if name.startswith(kind)}

    def consumer(self) -> dict[str, Any]:
        """The settings of a consumer, but for its membership."""
        return {
            "group.id": self.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "max.poll.interval.ms": 300_000,
            "heartbeat.interval.ms": 1000,  # by which a member learns that another one has joined
            "topic.metadata.refresh.interval.ms": 5_000,  # until then a topic that a broker did not know of is not read
            "queued.max.messages.kbytes": 32 << 10,
            "auto.offset.reset": self.start,
            **self.client(),
            **self._only("consumer."),
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
        }

    @property
    def has_session(self) -> bool:
        """Whether the URL says how long a silent consumer is waited for."""
        return not self.driver.keys().isdisjoint(("session.timeout.ms", "consumer.session.timeout.ms"))

    def producer(self) -> dict[str, Any]:
        """The settings of a producer: confirmed means on every replica in sync, once and in order."""
        return {
            "partitioner": "murmur2_random",  # as Java's, so that a key stays in its partition whoever sends
            "linger.ms": "2",
            "message.timeout.ms": "30000",
            "message.max.bytes": str(100 << 20),  # the topic decides
            "topic.metadata.propagation.max.ms": "3000",
            **self.client(),
            **self._only("producer."),
            "enable.idempotence": "true",
            "acks": "all",
        }

    def rung(self, source: str, delay: timedelta) -> str:
        """The retry topic for that delay."""
        return f"{source}.retry.{spoken(delay)}"

    def rungs(self, source: str) -> list[str]:
        return [self.rung(source, delay) for delay in self.retry_topics]


def options_of(url: str) -> Options:
    """The options in that URL; ConfigError says what is wrong with it."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    driver = {name: value for name, value in given.items() if "." in name}
    ours = {name: value for name, value in given.items() if "." not in name}
    for name in ours:
        if name not in OPTIONS:
            raise ConfigError(f"unknown option {name!r} in a URL of Kafka{nearest(name, OPTIONS)}")
    login, _, servers = parts.netloc.rpartition("@")
    if not servers or parts.path.strip("/"):
        raise ConfigError(f"{_shown(url)}: a URL of Kafka is like kafka://host:9092/?group=billing; topics are sources")
    for server in servers.split(","):
        if not _SERVER.fullmatch(server):
            raise ConfigError(f"{server!r} in a URL of Kafka is no server: write host:9092, and commas between them")
    return Options(
        servers=servers,
        group=_text(ours, "group", "redrive"),
        start=_choice(ours, "start", ("earliest", "latest")),
        static=_choice(ours, "static", ("yes", "no")) == "yes",
        counters=_text(ours, "counters", "memory://"),
        retry_topics=_delays(ours.get("retry_topics", "")),
        dlq=topic_named(ours["dlq"]) if "dlq" in ours else None,
        dlq_only=_choice(ours, "dlq_only", ("no", "yes")) == "yes",
        most_open=_number(ours, "most_open", 5_000),
        most_bytes=_number(ours, "most_bytes", 64 << 20),
        driver={**_security(parts.scheme, login), **driver},
    )


def is_topic(source: str) -> bool:
    """Whether a topic can have that name."""
    return _TOPIC.fullmatch(source) is not None and source not in (".", "..")


def not_a_topic(source: str) -> str:
    """The error text for a name that no topic can have."""
    return f"{source!r} is no name of a Kafka topic: use letters, digits, '.', '_' and '-', at most 249 of them"


def topic_named(source: str) -> str:
    """The source, if a topic can have its name; ConfigError if not."""
    if not is_topic(source):
        raise UsageError(not_a_topic(source))
    return source


def _security(scheme: str, login: str) -> dict[str, str]:
    is_tls = scheme == "kafka+ssl"
    if not login:
        return {"security.protocol": "SSL"} if is_tls else {}
    user, _, password = login.partition(":")
    return {
        "security.protocol": "SASL_SSL" if is_tls else "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": unquote(user),
        "sasl.password": unquote(password),
    }


def _delays(text: str) -> tuple[timedelta, ...]:
    delays = tuple(duration(delay) for delay in text.split(",") if delay)
    if list(delays) != sorted(set(delays)) or any(delay <= timedelta() for delay in delays):
        raise ConfigError(f"retry_topics={text!r}: write the delays from the shortest to the longest, as 10s,1m,10m")
    return delays


def _text(ours: dict[str, str], name: str, default: str) -> str:
    value = ours.get(name, default)
    if not value:
        raise ConfigError(f"{name} in a URL of Kafka must not be empty")
    return value


def _choice(ours: dict[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = ours.get(name, choices[0])
    if value not in choices:
        raise ConfigError(f"{name}={value!r} in a URL of Kafka: it is {' or '.join(choices)}")
    return value


def _number(ours: dict[str, str], name: str, default: int) -> int:
    value = ours.get(name, str(default))
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{name}={value!r} in a URL of Kafka: it is a number, 1 or more")
    return int(value)


def _shown(url: str) -> str:
    return re.sub(r"//[^@/]*@", "//…@", url)
