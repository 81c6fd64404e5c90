"""Replays into queues of BullMQ. Its workers do not know of us: a success costs them nothing to be measured."""

from __future__ import annotations

from functools import cache
from uuid import uuid4

from tests.servers.redis import Redis

from benchmarks.harness import Cell, Measured, Scale, in_loop, side_by_side
from benchmarks.replays import replayed
from redrive.clock import SystemClock
from redrive.model import Message


@cache
def _server() -> Redis:
    return Redis().start()


def replay(scale: Scale) -> Measured:
    """Letters a second that a replay moves back to wait, each job made anew."""
    count = scale.of(10_000, 200)
    figures = side_by_side(
        {"redrive": lambda: in_loop(replayed("bullmq", f"bullmq+{_server().url}", _messages(count)))}, scale.rounds
    )
    return Measured(redrive=figures["redrive"], peers={}, settings={"letters": count})


def _messages(count: int) -> list[Message]:
    now, queue = SystemClock().now(), f"bench-{uuid4().hex}"
    headers = (("bullmq-name", b"charge"), ("bullmq-opts", b'{"attempts":3}'))
    return [Message(str(number), queue, b'{"order": 1}', now, headers) for number in range(count)]


CELLS = [Cell(name="bullmq/replay", unit="letters/s", measure=replay)]
