"""RQ with and without us: no-op jobs through one worker that does not fork; and a replay into its queue."""

from __future__ import annotations

import pickle
import time
from functools import cache
from tempfile import TemporaryDirectory
from uuid import uuid4

from redis import Redis as Client
from rq import Queue, SimpleWorker
from tests.servers.redis import Redis

from benchmarks.harness import Cell, Measured, Scale, Target, in_loop, side_by_side
from benchmarks.replays import replayed
from redrive.clock import SystemClock
from redrive.integrations.rq import RedriveRQ
from redrive.model import Message

ASKED = 3_000.0


@cache
def _server() -> Redis:
    return Redis().start()


def success(scale: Scale) -> Measured:
    """No-op jobs a second through a SimpleWorker in burst mode, with us attached and without."""
    count = scale.of(3_000, 50)
    figures = side_by_side(
        {"redrive": lambda: _drained(count, with_us=True), "rq alone": lambda: _drained(count, with_us=False)},
        scale.rounds,
    )
    return Measured(redrive=figures.pop("redrive"), peers=figures, settings={"jobs": count})


def _drained(count: int, *, with_us: bool) -> float:
    with TemporaryDirectory() as place, Client.from_url(_server().url) as redis:
        queue = Queue(f"bench-{uuid4().hex}", connection=redis)
        queue.enqueue_many([Queue.prepare_data("time.time") for _ in range(count)])
        worker = SimpleWorker([queue], connection=redis)
        told = RedriveRQ(worker, store=f"sqlite:///{place}/letters.db", spool=f"{place}/spool") if with_us else None
        begun = time.perf_counter()
        worker.work(burst=True, logging_level="ERROR")
        taken = time.perf_counter() - begun
        if told is not None:
            told.close()
        return count / taken


def replay(scale: Scale) -> Measured:
    """Letters a second that a replay puts back into a queue of RQ, each job made anew."""
    count = scale.of(10_000, 200)
    figures = side_by_side(
        {"redrive": lambda: in_loop(replayed("rq", f"rq+{_server().url}", _messages(count)))}, scale.rounds
    )
    return Measured(redrive=figures["redrive"], peers={"asked for": ASKED}, settings={"letters": count})


def _messages(count: int) -> list[Message]:
    now, queue = SystemClock().now(), f"bench-{uuid4().hex}"
    data = pickle.dumps(("time.time", None, (), {}))
    headers = (("rq-origin", queue.encode()), ("rq-description", b"time.time()"), ("rq-timeout", b"180"))
    return [Message(uuid4().hex, queue, data, now, headers) for _ in range(count)]


CELLS = [
    Cell(name="rq/success", unit="jobs/s", measure=success, target=Target(ratio=0.98)),
    Cell(name="rq/replay", unit="letters/s", measure=replay, target=Target(ratio=1.0)),
]
