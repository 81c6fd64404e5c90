"""The options in a URL of RabbitMQ.

amqp://user:password@host:5672/vhost?delay=1s,10s,1m&prefetch=200
amqps://…                                                the same over TLS
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Literal, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from redrive.config.durations import duration
from redrive.drivers.reach import Server
from redrive.errors import ConfigError, nearest
from redrive.transports.rabbitmq.topology import Queue

_THEIRS = ("heartbeat", "connection_attempts", "retry_delay", "socket_timeout", "ssl_options", "locale", "channel_max")
MOST_PREFETCHED = 65_535  # what a frame can say
OPTIONS = ("delay", "retry", "bury", "queues", "declare", "prefetch", "redeliveries", "confirm_timeout", "management")
_LADDER = tuple(timedelta(seconds=seconds) for seconds in (1, 5, 15, 60, 300, 900, 3600))
_YES, _NO = ("yes", "true", "1", "on"), ("no", "false", "0", "off")


class RetryBy(StrEnum):
    """How a message gets into its retry queue."""

    PUBLISH = "publish"  # a confirmed copy with its story, then the ack; the delay is the policy's, to the next rung
    REJECT = "reject"  # RabbitMQ moves it itself, with one fixed delay, and counts in x-death


class BuryIn(StrEnum):
    """Where dead messages are kept."""

    STORE = "store"
    DLQ = "dlq"  # in q.X.dlq, and not in the store
    BOTH = "both"


class Redeliveries(StrEnum):
    """What becomes of messages that were delivered before, and settled by nobody."""

    COUNT = "count"  # a copy that counts it takes their place
    IGNORE = "ignore"  # they are taken, and given back, as they are: for queues that belong to somebody else


class Options(Struct, frozen=True, kw_only=True):
    """A URL, taken apart.

    delay     how long failed messages wait: one time, or several for a policy with growing pauses
    retry     publish: a confirmed copy that carries its failures. reject: as RabbitMQ does it, with one delay
    bury      store, dlq (the queue q.X.dlq), or both
    queues    classic or quorum
    declare   whether queues that are missing are made
    prefetch  how many messages the broker sends ahead; more, where a batch handler holds more at a time
    redeliveries  count: a copy says that a message was delivered before. ignore: nothing of somebody else's is changed
    management  where `redrive doctor` finds its management API
    """

    url: str  # as pika takes it
    shown: str
    delays: tuple[timedelta, ...] = _LADDER
    retry: RetryBy = RetryBy.PUBLISH
    bury: BuryIn = BuryIn.STORE
    queues: Literal["classic", "quorum"] = "classic"
    declare: bool = True
    prefetch: int = 400
    redeliveries: Redeliveries = Redeliveries.COUNT
    confirm_timeout: timedelta = timedelta(seconds=30)
    management: str | None = None

    @property
    def server(self) -> Server:
        """Where the broker should be."""
        parts = urlsplit(self.url)
        tls = parts.scheme == "amqps"
        return Server("RabbitMQ", parts.hostname or "", parts.port or (5671 if tls else 5672), tls, "amqp", "amqps")

    @property
    def vhost(self) -> str:
        return unquote(urlsplit(self.url).path.removeprefix("/"))

    @property
    def management_url(self) -> str:
        """As given, with the same user if it names none; or port 15672 of the same host."""
        own = urlsplit(self.url)
        parts = urlsplit(self.management or f"http://{_host(own)}:15672")
        if parts.username or not own.username:
            return parts.geturl()
        return parts._replace(netloc=f"{own.username}:{own.password or ''}@{parts.netloc}").geturl()

    def queue(self, name: str) -> Queue:
        """The queue of that name as this transport would make it."""
        return Queue(name, (), self.delays, self.queues)


def options_of(url: str) -> Options:
    """Read a URL; ConfigError says which part of it is wrong."""
    parts = urlsplit(url)
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise ConfigError("no URL of RabbitMQ: write it like amqp://user:password@host:5672/vhost")
    given = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in given if name in OPTIONS}
    theirs = [(name, value) for name, value in given if name not in OPTIONS]
    for name, _ in theirs:
        if name not in _THEIRS:
            raise ConfigError(f"RabbitMQ's URL has no option {name!r}{nearest(name, (*OPTIONS, *_THEIRS))}")
    address = urlunsplit(
        parts._replace(path=parts.path if parts.path not in ("", "/") else "/%2F", query=urlencode(theirs))
    )
    try:
        port = parts.port or (5671 if parts.scheme == "amqps" else 5672)
    except ValueError as error:
        raise ConfigError(f"the URL of RabbitMQ cannot be used: {error}") from None
    return _read(ours, Options(url=address, shown=f"RabbitMQ ({parts.hostname}:{port})"))


def _host(parts: SplitResult) -> str:
    return f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else str(parts.hostname)


def _read(ours: dict[str, str], start: Options) -> Options:
    retry = _one_of(RetryBy, "retry", ours.get("retry", start.retry))
    delays = _delays(ours["delay"]) if "delay" in ours else start.delays
    if retry is RetryBy.REJECT:
        if "delay" in ours and len(delays) > 1:
            raise ConfigError("retry=reject has one delay for all: give one, or let retry=publish choose among them")
        delays = delays if "delay" in ours else (timedelta(seconds=15),)
    return Options(
        url=start.url,
        shown=start.shown,
        delays=delays,
        retry=retry,
        bury=_one_of(BuryIn, "bury", ours.get("bury", start.bury)),
        queues=_kind(ours.get("queues", start.queues)),
        declare=_truth("declare", ours.get("declare", "yes")),
        prefetch=_whole("prefetch", ours.get("prefetch", str(start.prefetch)), 1, MOST_PREFETCHED),
        redeliveries=_one_of(Redeliveries, "redeliveries", ours.get("redeliveries", start.redeliveries)),
        confirm_timeout=duration(ours["confirm_timeout"]) if "confirm_timeout" in ours else start.confirm_timeout,
        management=ours.get("management"),
    )


def _delays(text: str) -> tuple[timedelta, ...]:
    return tuple(sorted({duration(part.strip()) for part in text.split(",")}))


E = TypeVar("E", bound=StrEnum)


def _one_of(kind: type[E], name: str, value: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(
            f"{name}={value!r}: it is {' or '.join(kind)}{nearest(value, [member.value for member in kind])}"
        ) from None


def _kind(value: str) -> Literal["classic", "quorum"]:
    if value == "classic":
        return "classic"
    if value == "quorum":
        return "quorum"
    raise ConfigError(f"queues={value!r}: it is classic or quorum")


def _truth(name: str, value: str) -> bool:
    if value.lower() in (*_YES, *_NO):
        return value.lower() in _YES
    raise ConfigError(f"{name}={value!r}: it is yes or no")


def _whole(name: str, value: str, least: int, most: int) -> int:
    if value.isdecimal() and least <= int(value) <= most:
        return int(value)
    raise ConfigError(f"{name}={value!r}: it is a number from {least} to {most:,}")
