"""The queue in PostgreSQL beside pgqueuer, procrastinate and a bare loop: one process, one server, 335-byte bodies.

The server is PostgreSQL 15 as Debian ships it, with fsync and synchronous_commit on. Each contender has a database of
its own on it, and they take turns.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg
from tests.servers.postgresql import PostgreSQL

from benchmarks.draining import draining
from benchmarks.harness import (
    Cell,
    Contender,
    Measured,
    Scale,
    Target,
    in_loop,
    rounded,
    say,
    side_by_side,
)
from benchmarks.peers.bare_postgresql import Bare
from benchmarks.peers.pgqueuer_postgresql import PgQueuer
from benchmarks.peers.procrastinate_postgresql import Procrastinate
from benchmarks.samples import BODY_SIZE, bodies
from redrive import Redrive
from redrive.config.settings import Settings
from redrive.worker import Worker

_SOURCE = "orders"
_BATCH = 500
_BULK = 5_000  # messages of one call of a sender, as for pgqueuer
_STEADY = 5_000  # messages a second
_SETTINGS = ("shared_buffers = 256MB", "max_wal_size = 4GB", "checkpoint_timeout = 15min")
Figures = dict[str, dict[str, list[float]]]
"""`in`, `out` and `both` of each contender, round by round."""


# -- the cells -------------------------------------------------------------------------------------------------------


def enqueue(scale: Scale) -> Measured:
    """Many messages by one sender, until the server has all of them."""
    return _beside(scale, "in", ("pgqueuer", "procrastinate"))


def drain(scale: Scale) -> Measured:
    """Handle what waits, until nothing is unsettled."""
    return _beside(scale, "out", ("pgqueuer", "procrastinate"))


def in_and_out(scale: Scale) -> Measured:
    """Messages a second that are sent and then handled."""
    return _beside(scale, "both", ("pgqueuer", "procrastinate"))


def enqueue_bare(scale: Scale) -> Measured:
    """The same as a part of a bare COPY."""
    return _beside(scale, "in", ("bare",))


def drain_bare(scale: Scale) -> Measured:
    """The same as a part of a bare loop."""
    return _beside(scale, "out", ("bare",))


def drain_full(scale: Scale) -> Measured:
    """With 1,000,000 other messages in the queue, and after as many have gone through it, as a part of the same with
    neither."""
    count, many = scale.of(40_000, 400), scale.of(1_000_000, 2_000)
    with _server() as server:
        url = server.new_database()
        fresh = [in_loop(_passage(url, count))[1] for _ in range(scale.rounds)]
        in_loop(_add(url, "others", many))
        present = [in_loop(_passage(url, count))[1] for _ in range(scale.rounds)]
        in_loop(_handled(url, "others", many))
        churned = [in_loop(_passage(url, count))[1] for _ in range(scale.rounds)]
    found = {"with others present": max(present), "after churn": max(churned)}
    return Measured(
        redrive=min(found.values()),
        peers={"an empty queue": max(fresh)},
        details={name: rounded(figure) for name, figure in found.items()},
        settings=_settings() | {"messages": count, "others": many},
    )


def within(scale: Scale) -> Measured:
    """Microseconds that a send adds to a transaction of the user's own, beside one more INSERT of the same bytes."""
    count = scale.of(2_000, 50)
    with _server() as server:
        url = server.new_database()
        figures = side_by_side(
            {
                "redrive": lambda: in_loop(_within(url, count, sends=True)),
                "one INSERT": lambda: in_loop(_within(url, count, sends=False)),
            },
            scale.rounds,
        )
    return Measured(redrive=figures.pop("redrive"), peers=figures, settings=_settings() | {"transactions": count})


def dead_rows(scale: Scale) -> Measured:
    """Dead rows at most, while 5,000 messages a second go through for ten minutes (REDRIVE_BENCH_STEADY: seconds)."""
    seconds = float(os.environ.get("REDRIVE_BENCH_STEADY", scale.of(600, 3)))
    with _server() as server:
        seen = in_loop(_steadily(server.new_database(), seconds))
    return Measured(
        redrive=float(max(row["dead"] for row in seen)),
        peers={},
        details={"each ten seconds": seen[:: max(1, len(seen) // 60)]},
        settings=_settings() | {"seconds": seconds, "a second": _STEADY},
    )


# -- measuring -------------------------------------------------------------------------------------------------------


@cache
def _figures(scale: Scale) -> Figures:
    """Adding and handling are one passage, so that five cells cost one."""
    count, slow = scale.of(40_000, 400), scale.of(1_000, 50)
    found: Figures = {}
    with _server() as server:
        bare, peer, other, ours = (server.new_database() for _ in range(4))
        passages: dict[str, tuple[int, Callable[[], Coroutine[Any, Any, tuple[float, float]]]]] = {
            "redrive": (count, lambda: _passage(ours, count)),
            "bare": (count, lambda: _peer_passage(Bare(bare), count)),
            "pgqueuer": (count // 2, lambda: _peer_passage(PgQueuer(peer), count // 2)),
            "procrastinate": (slow, lambda: _peer_passage(Procrastinate(other), slow)),
        }

        def contender(name: str) -> Contender:
            rounds = found.setdefault(name, {"in": [], "out": [], "both": []})

            def once() -> float:
                into, out = in_loop(passages[name][1]())
                rounds["in"].append(into)
                rounds["out"].append(out)
                rounds["both"].append(1 / (1 / into + 1 / out))
                say(f"    {name}: {into:,.0f} in, {out:,.0f} out")
                return rounds["both"][-1]

            return once

        side_by_side({name: contender(name) for name in passages}, scale.rounds)
    return found


def _beside(scale: Scale, figure: str, peers: Sequence[str]) -> Measured:
    found = {name: max(rounds[figure]) for name, rounds in _figures(scale).items()}
    return Measured(
        redrive=found["redrive"],
        peers={name: found[name] for name in peers},
        details={
            "rounds": {name: [rounded(one) for one in rounds[figure]] for name, rounds in _figures(scale).items()}
        },
        settings=_settings(),
    )


async def _passage(url: str, count: int) -> tuple[float, float]:
    """Messages a second in, and out."""
    return await _add(url, _SOURCE, count), await _handled(url, _SOURCE, count)


async def _add(url: str, source: str, count: int) -> float:
    app = Redrive(transport=url, store="memory://")
    messages = [app.message(source, body) for body in bodies(count)]
    async with app:
        await app.transport().depths()  # the tables are there
        began = time.perf_counter()
        await asyncio.gather(*(_send(app, messages[half::2]) for half in range(2)))
        return count / (time.perf_counter() - began)


async def _send(app: Redrive, messages: Sequence[Any]) -> None:
    for start in range(0, len(messages), _BULK):
        await app.send_messages(messages[start : start + _BULK])


async def _handled(url: str, source: str, count: int) -> float:
    app = Redrive(transport=url, store="memory://", settings=Settings(batch=_BATCH, concurrency=50))
    worker = draining(app, source, count)
    async with app:
        await app.transport().depths()  # the tables are there
        began = time.perf_counter()
        await worker.run()
        return count / (time.perf_counter() - began)


async def _peer_passage(peer: Any, count: int) -> tuple[float, float]:
    made = list(bodies(count))
    async with peer:
        began = time.perf_counter()
        await peer.add(made)
        into = count / (time.perf_counter() - began)
        began = time.perf_counter()
        assert await peer.drain() == count
        return into, count / (time.perf_counter() - began)


async def _within(url: str, count: int, *, sends: bool) -> float:
    async with (
        Redrive(transport=url, store="memory://") as app,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
    ):
        await connection.execute("CREATE TABLE IF NOT EXISTS plain (id text PRIMARY KEY, body bytea)")
        async with connection.transaction():
            await app.send(_SOURCE, b"the first", connection=connection)
        took = 0.0
        for number, body in enumerate(bodies(count)):
            async with connection.transaction():
                began = time.perf_counter()
                if sends:
                    await app.send(_SOURCE, body, connection=connection)
                else:
                    row = (f"{time.time_ns()}-{number}", body)
                    await connection.execute("INSERT INTO plain VALUES (%s, %s)", row)
                took += time.perf_counter() - began
        return took / count * 1e6


async def _steadily(url: str, seconds: float) -> list[dict[str, int]]:
    app = Redrive(transport=url, store="memory://", settings=Settings(batch=_BATCH, concurrency=50))

    @app.handler(_SOURCE)
    async def handle(body: bytes) -> None:
        """Nothing."""

    async with app:
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        seen = await _fed(app, url, seconds)
        worker.stop()
        await running
    return seen


async def _fed(app: Redrive, url: str, seconds: float) -> list[dict[str, int]]:
    """Send at that pace; what the table looks like, second by second."""
    seen: list[dict[str, int]] = []
    some = list(bodies(_STEADY // 10))
    began = time.monotonic()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        tick = 0
        while time.monotonic() < began + seconds:  # a machine that cannot keep the pace sends as many as it can
            await asyncio.sleep(max(0.0, began + tick / 10 - time.monotonic()))
            await app.send_messages([app.message(_SOURCE, body) for body in some])
            tick += 1
            if tick % 10 == 0:
                sent = {"second": round(time.monotonic() - began), "sent": tick * len(some)}
                seen.append(await _table(connection) | sent)
                if tick % 100 == 0:
                    say(f"    {seen[-1]}")
    return seen


async def _table(connection: Any) -> dict[str, int]:
    statement = """
        SELECT s.n_dead_tup, s.n_live_tup, pg_relation_size(s.relid) / 1024, pg_indexes_size(s.relid) / 1024,
            s.autovacuum_count
        FROM pg_stat_user_tables s WHERE s.relname = 'queue'"""
    row = await (await connection.execute(statement)).fetchone()
    return dict(zip(("dead", "live", "table_kb", "indexes_kb", "vacuums"), row, strict=True))


@contextmanager
def _server() -> Iterator[PostgreSQL]:
    with PostgreSQL(lines=_SETTINGS) as server:
        yield server


def _settings() -> dict[str, Any]:
    return {"body": BODY_SIZE, "batch": _BATCH, "server": list(_SETTINGS)}


CELLS = (
    Cell(name="postgresql/enqueue", unit="messages/s", measure=enqueue, target=Target(ratio=3)),
    Cell(name="postgresql/drain", unit="messages/s", measure=drain, target=Target(ratio=3)),
    Cell(name="postgresql/in-and-out", unit="messages/s", measure=in_and_out, target=Target(ratio=3)),
    Cell(name="postgresql/enqueue-bare", unit="messages/s", measure=enqueue_bare, target=Target(ratio=0.5)),
    Cell(name="postgresql/drain-bare", unit="messages/s", measure=drain_bare, target=Target(ratio=0.5)),
    Cell(name="postgresql/drain-full", unit="messages/s", measure=drain_full, target=Target(ratio=0.8)),
    Cell(name="postgresql/within", unit="µs", measure=within, less_is_better=True),
    Cell(
        name="postgresql/dead-rows", unit="rows", measure=dead_rows, target=Target(most=1_000_000), less_is_better=True
    ),
)
