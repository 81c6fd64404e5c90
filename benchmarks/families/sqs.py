"""Redrive on SQS beside a plain loop around boto3 and Celery, on ElasticMQ; and replays of letters into it."""

from __future__ import annotations

import asyncio
import atexit
import statistics
import time
from functools import cache
from itertools import count

from msgspec.structs import replace
from tests.servers.elasticmq import ElasticMQ

from benchmarks.actors import acting
from benchmarks.draining import drained, draining
from benchmarks.harness import Cell, Contender, Measured, Scale, Target, in_loop, rounded, side_by_side
from benchmarks.peers import boto3_sqs, celery_sqs
from redrive import Message, Redrive
from redrive.clock import SystemClock
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter
from redrive.transports.base import ACCEPTED
from redrive.transports.sqs import open_transport

_BODY, _CONCURRENCY = b"x" * 300, 10
_PATIENCE = 120  # seconds: what does not end in that time is a defect that is to be seen
_queues = count(1)


def consume(scale: Scale) -> Measured:
    """Handle what waits, until the last is deleted, with a handler that does nothing. Celery gets fewer."""
    total, few = scale.of(10_000, 200), scale.of(2_000, 50)
    loop = boto3_sqs.consume
    return _measured(
        scale,
        {
            "redrive": lambda: in_loop(_drained(_filled(total), total)),
            "boto3, delete each": lambda: loop(_server().endpoint, _filled(few), few, in_batches=False),
            "boto3, delete tens": lambda: loop(_server().endpoint, _filled(total), total, in_batches=True),
            "celery": lambda: celery_sqs.consume(_server().endpoint, few),
        },
        messages=total,
    )


def send(scale: Scale) -> Measured:
    """Send, until the last is answered for."""
    total = scale.of(10_000, 200)
    return _measured(scale, {"redrive": lambda: in_loop(_sent(_queue(), total))}, messages=total)


def replay(scale: Scale) -> Measured:
    """Letters sent back by a replay, from its start until the last is confirmed; µs for each."""
    total = scale.of(5_000, 100)
    figures = side_by_side({"redrive": lambda: in_loop(_replayed(_queue(), total))}, scale.rounds)
    return Measured(
        redrive=1e6 / figures["redrive"],
        peers={},
        details={"letters/s": rounded(figures["redrive"])},
        settings={"letters": total, "body_bytes": len(_BODY)},
    )


def _measured(scale: Scale, contenders: dict[str, Contender], **settings: int) -> Measured:
    figures = side_by_side(contenders, scale.rounds, max if scale.quick else statistics.median)
    ours = figures.pop("redrive")
    return Measured(
        redrive=ours,
        peers=figures,
        details={f"ratio to {name}": rounded(ours / figure) for name, figure in figures.items()},
        settings={**settings, "body_bytes": len(_BODY), "concurrency": _CONCURRENCY},
    )


async def _drained(queue: str, total: int) -> float:
    settings = replace(Settings(), concurrency=_CONCURRENCY)
    app = Redrive(transport=f"{_server().url}&wait=1s", store="memory://", settings=settings)
    async with asyncio.timeout(_PATIENCE):
        return await drained(app, draining(app, queue, total), total)


async def _sent(queue: str, total: int) -> float:
    transport = open_transport(_server().url, clock=SystemClock(), lease=Settings().lease)
    messages = _messages(queue, total)
    began = time.perf_counter()
    answers = await transport.send(messages)
    took = time.perf_counter() - began
    await transport.aclose()
    assert set(answers) == {ACCEPTED}
    return total / took


async def _replayed(queue: str, total: int) -> float:
    async with Redrive(transport=_server().url, store="memory://") as app:
        await app.transport().send(_messages(queue, 1))  # a queue that is there: a replay makes none
        letters = [make_letter(message, make_failure(), state=State.EXHAUSTED) for message in _messages(queue, total)]
        await app.store.letters.record(letters)
        app.declare(queue)
        service = Service(app)
        began = time.perf_counter()
        await service.run_replay((await service.replay(Query(), every=True, actor=acting("benchmark"))).id)
        return total / (time.perf_counter() - began)


@cache
def _server() -> ElasticMQ:
    server = ElasticMQ().start()
    atexit.register(server.discard)
    return server


def _queue() -> str:
    return f"bench-{next(_queues)}"


def _filled(total: int) -> str:
    queue = _queue()
    in_loop(_sent(queue, total))
    return queue


def _messages(queue: str, number: int) -> list[Message]:
    now = SystemClock().now()
    return [Message(f"m-{n:07}", queue, _BODY, now) for n in range(number)]


CELLS = (
    Cell(name="sqs/consume", unit="messages/s", measure=consume, target=Target(ratio=3)),
    Cell(name="sqs/send", unit="messages/s", measure=send),
    Cell(name="sqs/replay", unit="µs each", measure=replay, target=Target(most=1000), less_is_better=True),
)
