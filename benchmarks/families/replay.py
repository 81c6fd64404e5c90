"""Replays: letters of 335-byte bodies from SQLite back to their queue, beside a bare send of the same messages."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path

from msgspec.structs import replace
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

from benchmarks.actors import acting
from benchmarks.harness import Cell, Measured, Scale, Target, async_rate, in_loop, scratch, side_by_side
from benchmarks.samples import BODY_SIZE, batches, bodies
from redrive import Redrive
from redrive.forensics.query import Query
from redrive.model import Letter, Message
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.transports.rabbitmq.declaring import Declaring
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import options_of

_SHARE = Target(ratio=0.4)
_SECONDS = 4


@contextmanager
def _directory() -> Iterator[Path]:
    path = scratch() / f"replay-{secrets.token_hex(4)}"
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@cache
def _redis() -> Redis:
    return Redis().start()


@cache
def _kafka() -> Kafka:
    return Kafka().start()


@cache
def _rabbitmq() -> RabbitMQ:
    return RabbitMQ().start()


def _urls(kind: str, directory: Path) -> str:
    if kind == "redis":
        return _redis().url
    if kind == "kafka":
        return f"kafka://{_kafka().bootstrap}/?group=bench&counters=sqlite:///{directory}/counts.db"
    return _rabbitmq().url if kind == "rabbitmq" else f"sqlite:///{directory}/redrive.db"


# -- beside a bare send ----------------------------------------------------------------------------------------------


def beside_a_send(kind: str) -> Callable[[Scale], Measured]:
    """Unlimited, unguarded, no consumer: freeze, claim, send, confirm and ledger, beside the send alone."""

    def measure(scale: Scale) -> Measured:
        count = scale.of(20_000, 200)
        found = side_by_side(
            {"redrive": lambda: in_loop(_replayed(kind, count)), "bare send": lambda: in_loop(_sent(kind, count))},
            scale.rounds,
        )
        settings = {"letters": count, "body": BODY_SIZE, "store": "sqlite"}
        return Measured(redrive=found.pop("redrive"), peers=found, settings=settings)

    return measure


async def _replayed(kind: str, count: int) -> float:
    with _directory() as directory:
        async with _app(kind, directory) as app:
            source = await _source(kind, app, directory)
            await _record(app, _letters(source, count))
            service = Service(app)
            replay = await service.replay(Query(), every=True, actor=acting("bench"), ordered=True)
            speed = await async_rate(count, service.run_replay(replay.id))
            assert (await service.replay_report(replay.id)).entries == {"sent": count}
            return speed


async def _sent(kind: str, count: int) -> float:
    with _directory() as directory:
        async with _app(kind, directory) as app:
            source = await _source(kind, app, directory)
            messages = [letter.message for letter in _letters(source, count)]
            return await async_rate(count, _send_all(app, messages))


async def _send_all(app: Redrive, messages: Sequence[Message]) -> None:
    for some in batches(messages):
        await app.transport().send(some)


def _app(kind: str, directory: Path) -> Redrive:
    return Redrive(transport=_urls(kind, directory), store=f"sqlite:///{directory}/redrive.db")


async def _source(kind: str, app: Redrive, directory: Path) -> str:
    """A source of its own; where the broker has to have it, it is made."""
    source = f"orders-{secrets.token_hex(4)}"
    if kind == "rabbitmq":
        options = options_of(_urls(kind, directory))
        link = Link(options)
        await Declaring(link, options).ensure(source)
        await link.aclose()
    elif kind == "kafka":
        from tests.conformance.test_kafka_transport import make_topics

        make_topics(_kafka(), source, partitions=4)
    if kind != "rabbitmq":
        await app.transport().send([make_message(id="first", source=source)])
    return source


def _letters(source: str, count: int) -> list[Letter]:
    failure = make_failure()
    letters = []
    for number, body in enumerate(bodies(count)):
        message = make_message(id=f"m{number}", source=source, body=body)
        letters.append(make_letter(message, failure, at=failure.at + timedelta(microseconds=number)))
    return letters


async def _record(app: Redrive, letters: Sequence[Letter]) -> None:
    for some in batches(letters):
        await app.store.letters.record(some)


# -- a rate ----------------------------------------------------------------------------------------------------------


def rate(per_second: float) -> Callable[[Scale], Measured]:
    """How far the rate that was kept is from the one that was asked for, in percent."""

    def measure(scale: Scale) -> Measured:
        seconds = scale.of(_SECONDS, 1)
        kept = in_loop(_kept(per_second, max(int(per_second * seconds), 2)))
        off = abs(kept - per_second) / per_second * 100
        return Measured(redrive=off, peers={}, details={"asked": per_second, "kept": round(kept, 3)})

    return measure


async def _kept(per_second: float, count: int) -> float:
    """Letters a second from the first batch to the last, which goes when the time of those before it is over."""
    with _directory() as directory:
        async with _app("embedded", directory) as app:
            source = await _source("embedded", app, directory)
            await _record(app, _letters(source, count))
            service = Service(app)
            replay = await service.replay(Query(), every=True, actor=acting("bench"), rate=per_second)
            seen: list[tuple[float, int]] = []
            await service.run_replay(replay.id, progress=lambda done: seen.append((time.perf_counter(), done)))
            went = [pair for pair in seen if pair[1]]
            return sum(done for _, done in went[:-1]) / (went[-1][0] - went[0][0])


# -- planning --------------------------------------------------------------------------------------------------------


def plan(scale: Scale) -> Measured:
    """What a replay of a million letters would do."""
    count = scale.of(1_000_000, 1000)
    return Measured(redrive=in_loop(_planned(count)), peers={}, settings={"letters": count})


async def _planned(count: int) -> float:
    with _directory() as directory:
        async with _app("embedded", directory) as app:
            letters = _letters("orders", 1000)
            for start in range(0, count, len(letters)):
                await app.store.letters.record([_renamed(letter, start) for letter in letters])
            service, query = Service(app), Query(sources=("orders",))
            began = time.perf_counter()
            found = await service.plan(query, rate=100)
            took = time.perf_counter() - began
            assert found.total == count
            return took


def _renamed(letter: Letter, start: int) -> Letter:
    from redrive.model import letter_id

    id = f"{start}-{letter.message.id}"
    return replace(letter, id=letter_id("orders", id), message=replace(letter.message, id=id))


CELLS = [
    *(
        Cell(name=f"replay/{kind}", unit="letters/s", measure=beside_a_send(kind), target=_SHARE)
        for kind in ("embedded", "redis", "kafka", "rabbitmq")
    ),
    *(
        Cell(
            name=f"replay/rate-{per_second}",
            unit="percent off",
            measure=rate(per_second),
            target=Target(most=5),
            less_is_better=True,
        )
        for per_second in (1, 50, 1000, 5000)
    ),
    Cell(name="replay/plan", unit="s", measure=plan, target=Target(most=1), less_is_better=True),
]
