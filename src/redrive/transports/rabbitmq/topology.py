"""A topology in a few lines, and everything that follows from it.

For each queue `q.X` there are, beside its own bindings:

    q.X ── reject ──▶ retry.q.X ── retry ──▶ q.X.retry ── after its time ──▶ q.X       only q.X: no exchange of yours
    q.X ── publish ─▶ dlq.q.X ── parking ──▶ q.X.dlq

A queue with several delays has one retry queue for each (`q.X.retry.5000`, in milliseconds), so that a policy with
growing pauses needs no plugin: the messages of one queue wait equally long, so none waits behind another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from redrive.config.durations import Duration, duration
from redrive.errors import ConfigError

RETRY, PARKING = "retry", "parking"  # the routing keys of retry and dead-letter exchanges, as the contract has them
"""The routing keys within `retry.q.X` and `dlq.q.X`."""
_LONGEST_NAME = 255  # bytes; AMQP's shortstr
_LONGEST_DELAY = timedelta(milliseconds=2**32 - 1)
_KINDS = ("direct", "fanout", "topic", "headers")


def retry_exchange(queue: str) -> str:
    return f"retry.{queue}"


def retry_queue(queue: str, delay: timedelta | None = None) -> str:
    """The one retry queue of a queue, or the rung of its ladder that waits that long."""
    return f"{queue}.retry" if delay is None else f"{queue}.retry.{milliseconds(delay)}"


def retry_key(delay: timedelta | None = None) -> str:
    return RETRY if delay is None else f"{RETRY}.{milliseconds(delay)}"


def dlq_exchange(queue: str) -> str:
    return f"dlq.{queue}"


def dlq_queue(queue: str) -> str:
    return f"{queue}.dlq"


def source_of(dlq: str) -> str:
    """The queue that a dead-letter queue belongs to."""
    return dlq.removesuffix(".dlq")


def milliseconds(delay: timedelta) -> int:
    return delay // timedelta(milliseconds=1)


class Exchange(Struct, frozen=True):
    """An exchange that messages are published to."""

    name: str
    kind: str = "topic"


class Queue(Struct, frozen=True):
    """A queue, what flows into it, and how long a failed message waits before it is tried again."""

    name: str
    bindings: tuple[tuple[str, str], ...] = ()  # exchange, routing key
    delays: tuple[timedelta, ...] = (timedelta(seconds=15),)
    kind: Literal["classic", "quorum"] = "classic"


def queue(
    name: str,
    *,
    bind: Sequence[tuple[str, str]] = (),
    delay: Duration | Sequence[Duration] = "15s",
    kind: Literal["classic", "quorum"] = "classic",
) -> Queue:
    """`queue("q.mail", bind=[("domain.events", "mail.#")], delay=["1s", "10s", "1m"])`."""
    given = [delay] if isinstance(delay, str | int | float | timedelta) else list(delay)
    return Queue(name, tuple(bind), tuple(duration(pause) for pause in given), kind)


class Topology(Struct, frozen=True):
    """Exchanges and queues as people think of them."""

    queues: tuple[Queue, ...]
    exchanges: tuple[Exchange, ...] = ()


class DeclaredExchange(Struct, frozen=True):
    """An exchange as the broker has it."""

    name: str
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class DeclaredQueue(Struct, frozen=True):
    """A queue as the broker has it."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class DeclaredBinding(Struct, frozen=True):
    """A binding of a queue as the broker has it."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any] = {}


class Declared(Struct, frozen=True):
    """Everything that is to be on the broker, each part in order of its name."""

    exchanges: tuple[DeclaredExchange, ...]
    queues: tuple[DeclaredQueue, ...]
    bindings: tuple[DeclaredBinding, ...]


def declared(topology: Topology) -> Declared:
    """What the broker has to have; ConfigError where it could not, or where messages would go astray."""
    _check(topology)
    exchanges = [DeclaredExchange(exchange.name, exchange.kind) for exchange in topology.exchanges]
    queues: list[DeclaredQueue] = []
    bindings: list[DeclaredBinding] = []
    for queue in topology.queues:
        exchanges += [
            DeclaredExchange(name, "direct") for name in (retry_exchange(queue.name), dlq_exchange(queue.name))
        ]
        queues += [_main(queue), *_waiting(queue), DeclaredQueue(dlq_queue(queue.name), arguments=_kind(queue))]
        bindings += [DeclaredBinding(exchange, queue.name, key) for exchange, key in queue.bindings]
        bindings += [
            DeclaredBinding(retry_exchange(queue.name), retry_queue(queue.name, delay), retry_key(delay))
            for delay in rungs(queue)
        ]
        bindings.append(DeclaredBinding(dlq_exchange(queue.name), dlq_queue(queue.name), PARKING))
    return Declared(_in_order(exchanges), _in_order(queues), _in_order(bindings))


def rungs(queue: Queue) -> Sequence[timedelta | None]:
    """None: the retry queue that rejected messages fall into; then the ladder, if there is one."""
    return [None, *(sorted(queue.delays) if len(queue.delays) > 1 else ())]


def _main(queue: Queue) -> DeclaredQueue:
    dead = {"x-dead-letter-exchange": retry_exchange(queue.name), "x-dead-letter-routing-key": RETRY}
    return DeclaredQueue(queue.name, arguments={**_kind(queue), **dead})


def _waiting(queue: Queue) -> Iterator[DeclaredQueue]:
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue.name}
    for delay in rungs(queue):
        waits = {"x-message-ttl": milliseconds(min(queue.delays) if delay is None else delay)}
        yield DeclaredQueue(retry_queue(queue.name, delay), arguments={**_kind(queue), **waits, **back})


def _kind(queue: Queue) -> dict[str, Any]:
    return {"x-queue-type": "quorum"} if queue.kind == "quorum" else {}


def _in_order(values: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(values, key=lambda part: tuple(str(getattr(part, name)) for name in part.__struct_fields__)))


# -- what could not be, or would not do what was meant ------------------------------------------------------------


def _check(topology: Topology) -> None:
    if not topology.queues:
        raise ConfigError("a topology without a queue: give it at least one, such as queue('q.mail')")
    for exchange in topology.exchanges:
        _check_exchange(exchange)
    known = {exchange.name for exchange in topology.exchanges}
    for queue in topology.queues:
        _check_queue(queue, known)
    _check_names(topology)


def _check_exchange(exchange: Exchange) -> None:
    _check_name("exchange", exchange.name)
    if exchange.kind not in _KINDS:
        raise ConfigError(f"exchange {exchange.name!r} is {exchange.kind!r}: it is one of {', '.join(_KINDS)}")


def _check_queue(queue: Queue, exchanges: set[str]) -> None:
    _check_name("queue", queue.name)
    if queue.kind not in ("classic", "quorum"):
        raise ConfigError(f"queue {queue.name!r} is {queue.kind!r}: it is classic or quorum")
    if not queue.delays:
        raise ConfigError(
            f"queue {queue.name!r} has no delay: say how long a failed message waits, such as delay='15s'"
        )
    for delay in queue.delays:
        if not timedelta() < delay <= _LONGEST_DELAY or delay % timedelta(milliseconds=1):
            raise ConfigError(f"queue {queue.name!r}: a delay is 1 ms to 49 days, in whole milliseconds")
    if len(set(queue.delays)) < len(queue.delays):
        raise ConfigError(f"queue {queue.name!r} has the same delay twice")
    for exchange, key in queue.bindings:
        if exchange not in exchanges:
            there = ", ".join(sorted(exchanges)) or "none"
            raise ConfigError(
                f"queue {queue.name!r} is bound to exchange {exchange!r}, which is not declared: {there} is"
            )
        if len(key.encode()) > _LONGEST_NAME:
            raise ConfigError(f"queue {queue.name!r}: a routing key has at most {_LONGEST_NAME} bytes")


def _check_name(what: str, name: str) -> None:
    longest = retry_queue(name, _LONGEST_DELAY) if what == "queue" else name
    if not name or len(longest.encode()) > _LONGEST_NAME:
        raise ConfigError(f"{name!r} is no name of a {what}: it has 1 to {_LONGEST_NAME - 17} bytes")
    if name.startswith("amq."):
        raise ConfigError(f"{what} {name!r}: names that begin with `amq.` belong to RabbitMQ")


def _check_names(topology: Topology) -> None:
    """A queue named like a part of another would swallow what is not its own."""
    names = [name for queue in topology.queues for name in _names(queue)]
    names += [exchange.name for exchange in topology.exchanges]
    names += [name for queue in topology.queues for name in (retry_exchange(queue.name), dlq_exchange(queue.name))]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"{twice[0]!r} is named twice: by you, or as the retry or dead-letter part of another queue")


def _names(queue: Queue) -> list[str]:
    return [queue.name, *(retry_queue(queue.name, delay) for delay in rungs(queue)), dlq_queue(queue.name)]
