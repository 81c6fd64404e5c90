"""Replays into lists of Taskiq on Redis."""

from __future__ import annotations

from functools import cache
from uuid import uuid4

from tests.servers.redis import Redis

from benchmarks.harness import Cell, Measured, Scale, in_loop, side_by_side
from benchmarks.replays import replayed
from redrive.clock import SystemClock
from redrive.model import Message

_BODY = b'{"task_id":"1","task_name":"shop:charge","labels":{},"labels_types":{},"args":[1],"kwargs":{}}'


@cache
def _server() -> Redis:
    return Redis().start()


def replay(scale: Scale) -> Measured:
    """Letters a second that a replay pushes back."""
    count = scale.of(10_000, 200)
    figures = side_by_side(
        {"redrive": lambda: in_loop(replayed("taskiq", f"taskiq+{_server().url}", _messages(count)))}, scale.rounds
    )
    return Measured(redrive=figures["redrive"], peers={}, settings={"letters": count})


def _messages(count: int) -> list[Message]:
    now, queue = SystemClock().now(), f"bench-{uuid4().hex}"
    return [Message(uuid4().hex, queue, _BODY, now, (("taskiq-broker", b"list"),)) for _ in range(count)]


CELLS = [Cell(name="taskiq/replay", unit="letters/s", measure=replay)]
