"""What Redrive costs a worker of Celery, and how fast letters go back to one.

The same worker (one process, solo pool, acks_late) drains the same tasks with and without `RedriveCelery`. What a task
that succeeds costs is told in CPU: neighbours do not change it. What one that fails costs is told in time, because it
waits for the disk. `details` has what a replay takes of this process's CPU.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from celery import Celery
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

from benchmarks.harness import Cell, Measured, Scale, Target, async_rate, in_loop, rounded, scratch, side_by_side
from redrive.flow.lineage import sent_back
from redrive.integrations.celery.transport import CeleryTransport
from redrive.integrations.celery.wire import kept
from redrive.integrations.letters import failure_of, letter_of
from redrive.model import Message
from redrive.transports.base import SendStatus

_ROOT = Path(__file__).parents[2]
_BATCH = 500
_NOW = datetime(2030, 1, 1, tzinfo=UTC)


def succeeds_rabbitmq(scale: Scale) -> Measured:
    """A task that does nothing, on RabbitMQ: microseconds of CPU in the worker."""
    return _beside(scale, _rabbitmq, "succeeds", "cpu")


def succeeds_redis(scale: Scale) -> Measured:
    """The same on Redis."""
    return _beside(scale, _redis, "succeeds", "cpu")


def fails(scale: Scale) -> Measured:
    """How many milliseconds more a task takes that fails, as Celery comes: it was acknowledged before it ran."""
    return _failed(scale, acks_late=False)


def fails_acks_late(scale: Scale) -> Measured:
    """The same with acks_late: its letter is on disk, with fsync, before its ack. That is one fsync of the machine."""
    return _failed(scale, acks_late=True)


def _failed(scale: Scale, *, acks_late: bool) -> Measured:
    found = _beside(scale, _rabbitmq, "fails", "wall", acks_late=acks_late)
    plain = found.peers["celery"]
    return Measured(
        redrive=max((found.redrive - plain) / 1e3, 0.001),
        peers={},
        details={"with_us": found.redrive, "without_us": plain},
        settings=found.settings,
    )


def replay_rabbitmq(scale: Scale) -> Measured:
    """Letters a second back into a queue of RabbitMQ, each confirmed by the broker."""
    return _replayed(scale, _rabbitmq)


def replay_redis(scale: Scale) -> Measured:
    """The same into Redis."""
    return _replayed(scale, _redis)


# -- measuring ---------------------------------------------------------------------------------------------------------


def _beside(scale: Scale, broker: Callable[[], str], task: str, figure: str, *, acks_late: bool = True) -> Measured:
    tasks = scale.of(20_000 if task == "succeeds" else 3_000, 400)
    rates = side_by_side(
        {
            "redrive": lambda: _run(broker(), task, tasks, watched=True, acks_late=acks_late)[figure] * 1e6,
            "celery": lambda: _run(broker(), task, tasks, watched=False, acks_late=acks_late)[figure] * 1e6,
        },
        scale.rounds,
        of=min,  # the calmest: what a neighbour adds is no cost of ours
    )
    return Measured(
        redrive=rates["redrive"],
        peers={"celery": rates["celery"]},
        settings={"tasks": tasks, "pool": "solo", "acks_late": acks_late},
    )


def _run(broker: str, task: str, tasks: int, *, watched: bool, acks_late: bool) -> dict[str, float]:
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        directory = Path(place)
        told = directory / "told"
        asked = {
            "broker": broker,
            "queue": queue,
            "tasks": tasks,
            "watched": watched,
            "acks_late": acks_late,
            "told": str(told),
            "store": f"sqlite:///{directory / 'letters.db'}",
            "spool": str(directory / "spool"),
        }
        _fill(broker, queue, task, tasks)
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.celery_app", "worker", "-P", "solo"]
        subprocess.run(
            [*command, "-l", "CRITICAL", "--without-gossip", "--without-mingle", "--without-heartbeat"],
            cwd=_ROOT,
            env={**os.environ, "BENCH_CELERY": json.dumps(asked), "C_FORCE_ROOT": "1"},
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=600,
        )
        found: dict[str, float] = json.loads(told.read_text())
        return found


def _fill(broker: str, queue: str, task: str, tasks: int) -> None:
    client = Celery("bench", broker=broker, set_as_current=False)
    client.conf.update(task_default_queue=queue, task_ignore_result=True)
    with client.connection_for_write() as connection, client.amqp.Producer(connection) as producer:
        for number in range(tasks):
            client.send_task(f"benchmarks.celery_app.{task}", args=[number], producer=producer)


def _replayed(scale: Scale, broker: Callable[[], str]) -> Measured:
    total = scale.of(20_000, 500)
    costs: list[float] = []
    figures = side_by_side({"redrive": lambda: in_loop(_replay(broker(), total, costs))}, scale.rounds)
    return Measured(
        redrive=figures["redrive"],
        peers={},
        details={"cpu_us": rounded(min(costs)), "letters_a_second": rounded(1e6 / figures["redrive"])},
        settings={"letters": total, "batch": _BATCH},
    )


async def _replay(broker: str, total: int, costs: list[float]) -> float:
    """Microseconds a letter."""
    messages = _messages(f"bench-{uuid.uuid4().hex[:8]}", total)
    _declare(broker, messages[0].origin)
    transport = CeleryTransport(f"celery+{broker}")
    try:
        await transport.check()
        began = time.process_time()
        taken = await async_rate(total, _send(transport, messages))
        costs.append((time.process_time() - began) * 1e6 / total)
        return 1e6 / taken
    finally:
        await transport.aclose()


async def _send(transport: CeleryTransport, messages: Sequence[Message]) -> None:
    for first in range(0, len(messages), _BATCH):
        answers = await transport.send(messages[first : first + _BATCH])
        if any(answer.status is not SendStatus.ACCEPTED for answer in answers):
            raise RuntimeError("a message was not accepted")


def _messages(queue: str, total: int) -> list[Message]:
    return [_message(queue, f"task-{number}") for number in range(total)]


def _message(queue: str, id: str) -> Message:
    received = SimpleNamespace(
        headers={"lang": "py", "task": "tasks.add", "id": id, "retries": 0, "root_id": id, "argsrepr": "(2, 2)"},
        body=b'[[2, 2], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]',
        properties={"correlation_id": id, "reply_to": "me", "delivery_mode": 2, "priority": 0},
        delivery_info={"exchange": "", "routing_key": queue},
        content_type="application/json",
        content_encoding="utf-8",
        errors=[],
    )
    dead = kept(received, task="tasks.add", id=id, now=_NOW)
    letter = letter_of(dead, [failure_of(ValueError("no"), at=_NOW)], transport="celery", now=_NOW)
    return sent_back(letter, now=_NOW, replay="r1")


def _declare(broker: str, queue: str) -> None:
    client = Celery("bench", broker=broker, set_as_current=False)
    with client.connection_for_write() as connection:
        connection.SimpleQueue(queue).close()


# -- servers -----------------------------------------------------------------------------------------------------------


@cache
def _rabbitmq() -> str:
    server = RabbitMQ()
    server.start()
    atexit.register(server.discard)
    return server.url


@cache
def _redis() -> str:
    server = Redis()
    server.start()
    atexit.register(server.discard)
    return server.url


CELLS = [
    Cell(
        name="celery/succeeds",
        unit="µs of CPU a task",
        measure=succeeds_rabbitmq,
        target=Target(ratio=0.98),
        less_is_better=True,
    ),
    Cell(
        name="celery/succeeds-redis",
        unit="µs of CPU a task",
        measure=succeeds_redis,
        target=Target(ratio=0.98),
        less_is_better=True,
    ),
    Cell(name="celery/fails", unit="ms more a task", measure=fails, target=Target(most=1.0), less_is_better=True),
    Cell(name="celery/fails-acks-late", unit="ms more a task", measure=fails_acks_late, less_is_better=True),
    Cell(
        name="celery/replay",
        unit="µs a letter",
        measure=replay_rabbitmq,
        target=Target(most=333.0),
        less_is_better=True,
    ),
    Cell(
        name="celery/replay-redis",
        unit="µs a letter",
        measure=replay_redis,
        target=Target(most=333.0),
        less_is_better=True,
    ),
]
