"""The embedded queue beside those of huey and persist-queue: one process, one SQLite file, durable, 335-byte bodies."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from benchmarks.draining import draining
from benchmarks.harness import Cell, Contender, Measured, Scale, Target, async_rate, in_loop, scratch, side_by_side
from benchmarks.peers.huey_sqlite import Huey
from benchmarks.peers.huey_sqlite import fill as fill_huey
from benchmarks.peers.persist import Persist
from benchmarks.peers.persist import fill as fill_persist
from benchmarks.samples import BODY_SIZE, batches, bodies
from redrive import Redrive
from redrive.config.settings import Settings
from redrive.worker import Worker

_BATCH = 500
_SENDERS = 100
_THREADS = 8
_THREE = Target(ratio=3)
Peer = Huey | Persist


# -- the cells -------------------------------------------------------------------------------------------------------


def drain(scale: Scale) -> Measured:
    """Consume and ack, where each message is acked by itself."""
    count = scale.of(20_000, 200)
    return _measured(
        scale,
        count,
        lambda: in_loop(_drain(count)),
        {
            "huey": lambda: _drained(count, scale, fill_huey, Huey),
            "persist-queue get": lambda: _persist_drained(count, scale, "each"),
            "persist-queue get+ack": lambda: _persist_drained(count, scale, "ack"),
        },
    )


def drain_checkpoint(scale: Scale) -> Measured:
    """The same against the one peer that gives up acks of single messages for one `task_done` for a whole batch."""
    count = scale.of(20_000, 200)
    way = "persist-queue get, task_done"
    return _measured(
        scale,
        count,
        lambda: in_loop(_drain(count)),
        {way: lambda: _persist_drained(count, scale, "checkpoint", min(_BATCH, count))},
    )


def enqueue(scale: Scale) -> Measured:
    """Many senders at once, each waiting until its own message is durable, as in a web server."""
    count = scale.of(20_000, 200)
    return _measured(scale, count, lambda: in_loop(_enqueue(count, _SENDERS)), _putters(count, scale))


def enqueue_bulk(scale: Scale) -> Measured:
    """One sender with many messages. The peers have no bulk `put`: their best way stands beside ours."""
    count = scale.of(20_000, 200)
    return _measured(scale, count, lambda: in_loop(_enqueue_bulk(count)), _putters(count, scale))


def enqueue_sequential(scale: Scale) -> Measured:
    """One sender, one message after the other: what the disk's fsync allows, for everybody."""
    count = scale.of(2_000, 50)
    peers: dict[str, Contender] = {
        "huey": lambda: _put(count, scale, Huey, threads=1),
        "persist-queue": lambda: _put(count, scale, Persist, threads=1),
    }
    return _measured(scale, count, lambda: in_loop(_enqueue(count, 1)), peers)


def roundtrip(scale: Scale) -> Measured:
    """Sent and handled at the same time, in one process: from the first send to the last ack."""
    count = scale.of(20_000, 200)
    return _measured(
        scale,
        count,
        lambda: in_loop(_roundtrip(count)),
        {
            "huey": lambda: _put_and_drained(scale.of(4_000, 50), Huey),
            "persist-queue": lambda: _put_and_drained(scale.of(4_000, 50), Persist),
        },
    )


# -- Redrive ---------------------------------------------------------------------------------------------------------


async def _drain(count: int) -> float:
    with _directory("redrive") as directory:
        app, worker = _app(directory, count)
        async with app:
            for some in batches([app.message("orders", body) for body in bodies(count)]):
                await app.send_messages(some)
            return await async_rate(count, worker.run())


async def _roundtrip(count: int) -> float:
    with _directory("redrive") as directory:
        app, worker = _app(directory, count)
        async with app:
            return await async_rate(count, asyncio.gather(worker.run(), _send(app, bodies(count), _SENDERS)))


async def _enqueue(count: int, senders: int) -> float:
    with _directory("redrive") as directory:
        async with Redrive(transport=f"sqlite:///{directory}/redrive.db") as app:
            await app.send("orders", b"the first opens the file")
            return await async_rate(count, _send(app, bodies(count), senders))


async def _enqueue_bulk(count: int) -> float:
    with _directory("redrive") as directory:
        async with Redrive(transport=f"sqlite:///{directory}/redrive.db") as app:
            await app.send("orders", b"the first opens the file")
            return await async_rate(count, _send_all(app, bodies(count)))


async def _send(app: Redrive, some: Sequence[bytes], senders: int) -> None:
    waiting = iter(some)

    async def sender() -> None:
        for body in waiting:
            await app.send("orders", body)

    await asyncio.gather(*(sender() for _ in range(senders)))


async def _send_all(app: Redrive, some: Sequence[bytes]) -> None:
    for part in batches(some):
        await app.send_messages([app.message("orders", body) for body in part])


def _app(directory: Path, count: int) -> tuple[Redrive, Worker]:
    """An app whose worker stops when it has handled that many."""
    app = Redrive(transport=f"sqlite:///{directory}/redrive.db", settings=replace(Settings(), batch=_BATCH))
    return app, draining(app, "orders", count)


# -- the peers -------------------------------------------------------------------------------------------------------


def _putters(count: int, scale: Scale) -> dict[str, Contender]:
    """Each alone and with threads: whichever way is faster for it counts."""
    return {
        "huey": lambda: _put(count, scale, Huey, threads=1),
        f"huey, {_THREADS} threads": lambda: _put(count, scale, Huey, threads=_THREADS),
        "persist-queue": lambda: _put(count, scale, Persist, threads=1),
        f"persist-queue, {_THREADS} threads": lambda: _put(count, scale, Persist, threads=_THREADS),
    }


def _put(count: int, scale: Scale, open: Callable[[Path], Peer], threads: int) -> float:
    with _directory("peer") as directory:
        peer = open(directory)
        waiting, end = iter(bodies(count)), time.perf_counter() + _seconds(scale)
        put: list[int] = []

        def sender() -> None:
            sent = 0
            for body in waiting:
                peer.put(body)
                sent += 1
                if time.perf_counter() > end:
                    break
            put.append(sent)

        took = _in_threads([sender] * threads)
        peer.close()
        return sum(put) / took


def _drained(
    count: int, scale: Scale, fill: Callable[[Path, Sequence[bytes]], None], open: Callable[[Path], Peer]
) -> float:
    with _directory("peer") as directory:
        fill(directory, bodies(count))
        peer = open(directory)
        began = time.perf_counter()
        done = peer.drain(count, _seconds(scale))
        took = time.perf_counter() - began
        peer.close()
        return done / took


def _persist_drained(count: int, scale: Scale, way: str, batch: int = 1) -> float:
    return _drained(
        count,
        scale,
        lambda directory, some: fill_persist(directory, some, way),
        lambda directory: Persist(directory, way=way, batch=batch),
    )


def _put_and_drained(count: int, open: Callable[[Path], Peer]) -> float:
    with _directory("peer") as directory:
        peer = open(directory)

        def sender() -> None:
            for body in bodies(count):
                peer.put(body)

        def consumer() -> None:
            done = 0
            while done < count:
                done += peer.drain(count - done, seconds=60)

        took = _in_threads([sender, consumer])
        peer.close()
        return count / took


def _in_threads(works: Sequence[Callable[[], None]]) -> float:
    """How long they took together."""
    threads = [threading.Thread(target=work) for work in works]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def _seconds(scale: Scale) -> float:
    """A peer that commits each message is not made to work off all of them: its rate is steady."""
    return 0.3 if scale.quick else 3.0


# -- both ------------------------------------------------------------------------------------------------------------


def _measured(scale: Scale, count: int, ours: Contender, peers: dict[str, Contender]) -> Measured:
    figures = side_by_side({"redrive": ours, **peers}, scale.rounds)
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        settings={
            "messages": count,
            "body_bytes": BODY_SIZE,
            "batch": _BATCH,
            "concurrency": Settings().concurrency,
            "senders": _SENDERS,
            "sqlite": "WAL, synchronous=FULL, for all",
        },
    )


@contextmanager
def _directory(name: str) -> Iterator[Path]:
    """An empty one, gone afterwards."""
    path = scratch() / f"embedded-{name}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


CELLS = (
    Cell(name="embedded/drain", unit="messages/s", measure=drain, target=_THREE),
    Cell(name="embedded/drain-checkpoint", unit="messages/s", measure=drain_checkpoint, target=_THREE),
    Cell(name="embedded/enqueue", unit="messages/s", measure=enqueue, target=_THREE),
    Cell(name="embedded/enqueue-bulk", unit="messages/s", measure=enqueue_bulk, target=_THREE),
    Cell(name="embedded/enqueue-sequential", unit="messages/s", measure=enqueue_sequential, target=Target(ratio=1)),
    Cell(name="embedded/roundtrip", unit="messages/s", measure=roundtrip, target=_THREE),
)
