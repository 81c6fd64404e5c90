"""Dramatiq with and without us: no-op messages through one worker; and a replay into its queues on both brokers."""

from __future__ import annotations

import time
from functools import cache
from tempfile import TemporaryDirectory
from uuid import uuid4

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

from benchmarks.harness import Cell, Measured, Scale, Target, in_loop, side_by_side
from benchmarks.replays import replayed
from redrive.clock import SystemClock
from redrive.integrations.dramatiq import RedriveDramatiq
from redrive.model import Message

ASKED = 3_000.0


@cache
def _redis() -> Redis:
    return Redis().start()


@cache
def _rabbitmq() -> RabbitMQ:
    return RabbitMQ().start()


def success(scale: Scale) -> Measured:
    """No-op messages a second through a worker with 4 threads on Redis, with our middleware and without."""
    count = scale.of(20_000, 200)
    figures = side_by_side(
        {"redrive": lambda: _drained(count, with_us=True), "dramatiq alone": lambda: _drained(count, with_us=False)},
        scale.rounds,
    )
    return Measured(redrive=figures.pop("redrive"), peers=figures, settings={"messages": count, "threads": 4})


def failure(scale: Scale) -> Measured:
    """Microseconds that a message which dies costs more with us: a letter that is on disk, fsync included."""
    count = scale.of(2_000, 50)
    figures = side_by_side(
        {
            "redrive": lambda: 1e6 / _drained(count, with_us=True, fails=True),
            "dramatiq alone": lambda: 1e6 / _drained(count, with_us=False, fails=True),
        },
        scale.rounds,
    )
    ours, theirs = figures["redrive"], figures["dramatiq alone"]
    return Measured(redrive=ours - theirs, peers={}, details={k: round(v) for k, v in figures.items()})


def _drained(count: int, *, with_us: bool, fails: bool = False) -> float:
    with TemporaryDirectory() as place:
        broker = RedisBroker(url=_redis().url, namespace=f"bench-{uuid4().hex}")
        if with_us:
            broker.add_middleware(RedriveDramatiq(store=f"sqlite:///{place}/letters.db", spool=f"{place}/spool"))

        def noop() -> None:
            if fails:
                raise ValueError("no")

        actor = dramatiq.actor(broker=broker, max_retries=0, throws=ValueError)(noop)
        for _ in range(count):
            actor.send()
        worker = dramatiq.Worker(broker, worker_threads=4)
        begun = time.perf_counter()
        worker.start()
        while broker.do_qsize("default"):
            time.sleep(0.005)
        taken = time.perf_counter() - begun
        worker.stop()
        broker.client.connection_pool.disconnect()
        return count / taken


def replay_to_redis(scale: Scale) -> Measured:
    """Letters a second that a replay puts back into a queue of Dramatiq on Redis."""
    return _replay(scale, lambda: f"dramatiq+{_redis().url}")


def replay_to_rabbitmq(scale: Scale) -> Measured:
    """The same on RabbitMQ, each confirmed."""
    return _replay(scale, _rabbitmq_queue)


def _rabbitmq_queue() -> str:
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    broker = RabbitmqBroker(url=_rabbitmq().url)
    broker.declare_queue("bench", ensure=True)
    broker.close()
    return f"dramatiq+{_rabbitmq().url}"


def _replay(scale: Scale, url: object) -> Measured:
    assert callable(url)
    count = scale.of(10_000, 200)
    figures = side_by_side({"redrive": lambda: in_loop(replayed("dramatiq", url(), _messages(count)))}, scale.rounds)
    return Measured(redrive=figures["redrive"], peers={"asked for": ASKED}, settings={"letters": count})


def _messages(count: int) -> list[Message]:
    now = SystemClock().now()
    made: list[dramatiq.Message[None]] = [
        dramatiq.Message("bench", "charge", (f"o-{number}",), {"amount": number}, {}) for number in range(count)
    ]
    return [Message(message.message_id, "bench", message.encode(), now) for message in made]


CELLS = [
    Cell(name="dramatiq/success", unit="messages/s", measure=success, target=Target(ratio=0.98)),
    Cell(name="dramatiq/failure", unit="µs", measure=failure, target=Target(most=1000.0), less_is_better=True),
    Cell(name="dramatiq/replay-redis", unit="letters/s", measure=replay_to_redis, target=Target(ratio=1.0)),
    Cell(name="dramatiq/replay-rabbitmq", unit="letters/s", measure=replay_to_rabbitmq, target=Target(ratio=1.0)),
]
