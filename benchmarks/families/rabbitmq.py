"""Redrive on RabbitMQ beside bare pika, FastStream and dramatiq; and the re-drive of dead messages.

Classic durable queue, persistent 300-byte messages, confirms and mandatory, prefetch 200, one process.
"""

from __future__ import annotations

import atexit
import resource
import statistics
import time
from functools import cache
from itertools import count

from msgspec.structs import replace
from tests.servers.rabbitmq import RabbitMQ

from benchmarks.draining import drained, draining, draining_in_batches
from benchmarks.harness import Cell, Contender, Measured, Scale, Target, in_loop, rounded, side_by_side
from benchmarks.peers import bare_rabbitmq, dramatiq_rabbitmq, faststream_rabbitmq
from redrive import Message, Redrive
from redrive.clock import SystemClock
from redrive.config.settings import Settings
from redrive.testing.builders import make_failure, make_letter
from redrive.transports.rabbitmq.dead_letter_queues import parcel_of
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.redrive import DeadMessages
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport

_BODY, _PREFETCH, _BATCH, _CONCURRENCY = b"x" * 300, 200, 100, 10
_SEND_AT_ONCE = 1000
_LEASE = Settings().lease
_queues = count(1)


# -- the cells -------------------------------------------------------------------------------------------------------


def consume(scale: Scale) -> Measured:
    """Handle what waits, until the last is acknowledged, with a handler that does nothing."""
    total = scale.of(50_000, 400)
    return _measured(
        scale,
        {
            "redrive": lambda: _consumed(_filled(total), total),
            "pika, ack multiple": lambda: bare_rabbitmq.consume(_url(), _filled(total), total),
        },
        messages=total,
    )


def batch(scale: Scale) -> Measured:
    """The same with a batch handler."""
    total = scale.of(50_000, 400)
    return _measured(
        scale,
        {
            "redrive": lambda: in_loop(_drained_in_batches(_filled(total), total)),
            "pika, ack multiple": lambda: bare_rabbitmq.consume(_url(), _filled(total), total),
        },
        messages=total,
        batch=_BATCH,
    )


def consume_frameworks(scale: Scale) -> Measured:
    """The same beside what others put around a client. They get fewer messages: their rate is steady."""
    total, few, fewer = scale.of(50_000, 400), scale.of(10_000, 200), scale.of(5_000, 100)
    return _measured(
        scale,
        {
            "redrive": lambda: _consumed(_filled(total), total),
            "FastStream": lambda: faststream_rabbitmq.consume(_url(), _filled(few), few),
            "dramatiq": lambda: dramatiq_rabbitmq.consume(_url(), fewer),
        },
        messages=total,
    )


def publish(scale: Scale) -> Measured:
    """Send, until the last is confirmed."""
    total = scale.of(50_000, 400)
    return _measured(
        scale,
        {
            "redrive": lambda: in_loop(_published(_made(), total)),
            "pika, pipelined confirms": lambda: bare_rabbitmq.publish(_url(), _made(), _BODY, total),
        },
        messages=total,
    )


def publish_frameworks(scale: Scale) -> Measured:
    """The same beside FastStream, which gets fewer messages."""
    total, few = scale.of(50_000, 400), scale.of(10_000, 200)
    return _measured(
        scale,
        {
            "redrive": lambda: in_loop(_published(_made(), total)),
            "FastStream": lambda: faststream_rabbitmq.publish(_url(), _made(), _BODY, few),
        },
        messages=total,
    )


def redrive(scale: Scale) -> Measured:
    """Dead messages sent back, each confirmed before it leaves its dead-letter queue."""
    total = scale.of(50_000, 400)
    grown: list[int] = []
    figures = side_by_side({"redrive": lambda: in_loop(_redriven(_made("?delay=15s"), total, grown))}, scale.rounds)
    return Measured(
        redrive=1e6 / figures["redrive"],
        peers={},
        details={"messages/s": rounded(figures["redrive"]), "grown_by_kib": grown},
        settings={"parked": total, "body_bytes": len(_BODY)},
    )


# -- measuring -------------------------------------------------------------------------------------------------------


def _measured(scale: Scale, contenders: dict[str, Contender], **settings: int) -> Measured:
    figures = side_by_side(contenders, scale.rounds, max if scale.quick else statistics.median)
    ours = figures.pop("redrive")
    return Measured(
        redrive=ours,
        peers=figures,
        details={f"ratio to {name}": rounded(ours / figure) for name, figure in figures.items()},
        settings={**settings, "body_bytes": len(_BODY), "prefetch": _PREFETCH, "concurrency": _CONCURRENCY},
    )


def _consumed(queue: str, total: int) -> float:
    return in_loop(_drained(queue, total))


async def _drained(queue: str, total: int) -> float:
    settings = replace(Settings(), batch=_BATCH, concurrency=_CONCURRENCY)
    app = Redrive(transport=f"{_url()}?prefetch={_PREFETCH}", store="memory://", settings=settings)
    return await drained(app, draining(app, queue, total), total)


async def _drained_in_batches(queue: str, total: int) -> float:
    settings = replace(Settings(), batch=_BATCH)
    app = Redrive(transport=f"{_url()}?prefetch={_PREFETCH}", store="memory://", settings=settings)
    return await drained(app, draining_in_batches(app, queue, total, _BATCH), total)


async def _published(queue: str, total: int) -> float:
    transport = _opened()
    messages = _messages(queue, total)
    began = time.perf_counter()
    for start in range(0, total, _SEND_AT_ONCE):
        await transport.send(messages[start : start + _SEND_AT_ONCE])
    took = time.perf_counter() - began
    await transport.aclose()
    return total / took


async def _redriven(queue: str, total: int, grown: list[int]) -> float:
    await _publish_dead(queue, total)
    dead_messages = DeadMessages(options_of(_url()), SystemClock())
    before, began = _peak(), time.perf_counter()
    done = await dead_messages.redrive(queue, limit=total, by="benchmark")
    took = time.perf_counter() - began
    grown.append(_peak() - before)
    await dead_messages.aclose()
    assert done.sent == total
    return total / took


def _peak() -> int:
    """KiB of memory at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# -- queues ----------------------------------------------------------------------------------------------------------


@cache
def _server() -> RabbitMQ:
    server = RabbitMQ().start()
    atexit.register(server.discard)
    return server


def _url() -> str:
    return f"{_server().url}%2F"


def _opened(options: str = "") -> RabbitTransport:
    return open_transport(_url() + options, clock=SystemClock(), lease=_LEASE)


def _made(options: str = "") -> str:
    """A queue with its retry and dead-letter parts."""
    queue = f"bench-{next(_queues)}"
    in_loop(_make(queue, options))
    return queue


async def _make(queue: str, options: str) -> None:
    transport = _opened(options)
    await transport._declaring.ensure(queue)
    await transport.aclose()


def _filled(total: int) -> str:
    queue = _made()
    bare_rabbitmq.publish(_url(), queue, _BODY, total)
    return queue


async def _publish_dead(queue: str, total: int) -> None:
    transport = _opened()
    for start in range(0, total, _SEND_AT_ONCE):
        some = _messages(queue, min(_SEND_AT_ONCE, total - start), start)
        await transport._publisher.publish([parcel_of(make_letter(one, make_failure())) for one in some])
    await transport.aclose()


def _messages(queue: str, number: int, start: int = 0) -> list[Message]:
    now = SystemClock().now()
    return [Message(f"m-{start + n:07}", queue, _BODY, now) for n in range(number)]


CELLS = (
    Cell(name="rabbitmq/consume", unit="messages/s", measure=consume, target=Target(ratio=0.6)),
    Cell(name="rabbitmq/batch", unit="messages/s", measure=batch, target=Target(ratio=0.9)),
    Cell(name="rabbitmq/consume-frameworks", unit="messages/s", measure=consume_frameworks, target=Target(ratio=3)),
    Cell(name="rabbitmq/publish", unit="messages/s", measure=publish, target=Target(ratio=0.6)),
    Cell(name="rabbitmq/publish-frameworks", unit="messages/s", measure=publish_frameworks, target=Target(ratio=3)),
    Cell(name="rabbitmq/redrive", unit="µs each", measure=redrive, target=Target(most=200), less_is_better=True),
)
