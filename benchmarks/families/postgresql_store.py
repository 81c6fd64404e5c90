"""Letters in PostgreSQL: recording them beside a bare COPY-then-upsert of the same rows, and finding them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import product

import psycopg
from tests.servers.postgresql import PostgreSQL

from benchmarks.harness import Cell, Measured, Scale, Target, async_rate, in_loop, percentiles, say, side_by_side
from benchmarks.samples import BATCH, batches, fresh
from redrive.forensics.query import Query
from redrive.model import Category, Letter, State
from redrive.stores.postgresql import PostgresStore
from redrive.stores.postgresql.codec import INSERTED, Row, row_of
from redrive.stores.shape import NATIVE

_COLUMNS = ", ".join(INSERTED)
_TABLE = ", ".join(f"{name} {type}{' PRIMARY KEY' * (name == 'id')}" for name, type in INSERTED.items())
_INDEXES = (
    "(state, category, created_at)",
    "(group_id, created_at)",
    "(source, created_at)",
    "(tenant, created_at)",
    "USING hash (message_id)",
)
_UPSERT = f"""
    INSERT INTO bare ({_COLUMNS}) SELECT {_COLUMNS} FROM staging
    ON CONFLICT (id) DO UPDATE SET document = excluded.document, updated_at = excluded.updated_at
"""


@cache
def _server() -> PostgreSQL:
    """One for all cells; it ends with this process."""
    return PostgreSQL(lines=("shared_buffers = 512MB", "max_wal_size = 4GB")).start()


@asynccontextmanager
async def _store() -> AsyncIterator[PostgresStore]:
    store = PostgresStore(_server().new_database())
    await store.letters.record([])
    await store.letters.tallies()
    try:
        yield store
    finally:
        await store.aclose()


def record(scale: Scale) -> Measured:
    """Letters a second into an empty store, in batches of 500, beside the same rows, made beforehand, copied into a
    staging table and from there upserted into a table with the same indexes; and, in the details, into one that has a
    primary key and no other index."""
    count = scale.of(20_000, 1_000)
    letters = list(fresh(0, count))
    rows = [row_of(letter, NATIVE) for letter in letters]
    figures = side_by_side(
        {
            "redrive": lambda: in_loop(_record(letters)),
            "COPY, then upsert": lambda: in_loop(_bare(rows, _INDEXES)),
            "primary key only": lambda: in_loop(_bare(rows, ())),
        },
        scale.rounds,
    )
    unsearchable = figures.pop("primary key only")
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        details={"COPY, then upsert into a table with a primary key only": round(unsearchable)},
        settings={"letters": count, "batch": BATCH, "fsync": "on", "synchronous_commit": "on"},
    )


async def _record(letters: Sequence[Letter]) -> float:
    async with _store() as store:

        async def all_of_them() -> None:
            for batch in batches(letters, BATCH):
                await store.letters.record(batch)

        return await async_rate(len(letters), all_of_them())


async def _bare(rows: Sequence[Row], indexes: Sequence[str]) -> float:
    async with await psycopg.AsyncConnection.connect(_server().new_database(), autocommit=True) as connection:
        await connection.execute(f"CREATE TABLE bare ({_TABLE})")
        for index in indexes:
            await connection.execute(f"CREATE INDEX ON bare {index}")
        await connection.execute(f"CREATE TEMP TABLE staging ({_TABLE}) ON COMMIT DELETE ROWS")

        async def all_of_them() -> None:
            for batch in batches(rows, BATCH):
                await _upsert(connection, batch)

        return await async_rate(len(rows), all_of_them())


async def _upsert(connection: psycopg.AsyncConnection, rows: Sequence[Row]) -> None:
    async with connection.transaction():
        async with connection.cursor().copy(f"COPY staging ({_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(list(INSERTED.values()))
            for row in rows:
                await copy.write_row(row)
        await connection.execute(_UPSERT)


Ask = Callable[[PostgresStore, int], Awaitable[object]]


def answers(scale: Scale) -> dict[str, Measured]:
    """What people ask of a million letters, each many times."""
    return in_loop(_answers(scale))


_KINDS = list(product((State.PENDING,), Category))


async def _newest(store: PostgresStore, number: int) -> object:
    state, category = _KINDS[number % len(_KINDS)]
    return await store.letters.search(Query(states=(state,), categories=(category,)), limit=50)


async def _groups(store: PostgresStore, _: int) -> object:
    return await store.letters.groups(Query())


async def _latest(store: PostgresStore, _: int) -> object:
    return await store.letters.search(Query(), limit=50)


async def _of_source(store: PostgresStore, number: int) -> object:
    return await store.letters.search(Query(sources=(f"orders-{number % 7}", "orders")), limit=50)


_ASKED: dict[str, Ask] = {"newest": _newest, "groups": _groups, "everything": _latest, "of a source": _of_source}


async def _answers(scale: Scale) -> dict[str, Measured]:
    count, times = scale.of(1_000_000, 1_000), scale.of(300, 5)
    async with _store() as store:
        say(f"  writing {count:,} letters")
        for start in range(0, count, BATCH):
            await store.letters.record(list(fresh(start, BATCH)))
        return {name: await _asked(store, ask, count, times) for name, ask in _ASKED.items()}


async def _asked(store: PostgresStore, ask: Ask, count: int, times: int) -> Measured:
    await ask(store, 0)
    seconds = []
    for number in range(times):
        began = time.perf_counter()
        await ask(store, number)
        seconds.append(time.perf_counter() - began)
    ms = percentiles(seconds)
    return Measured(redrive=ms["p99"], peers={}, details={"ms": ms}, settings={"letters": count, "asked": times})


_answered: dict[int, dict[str, Measured]] = {}


def _cell(name: str) -> Callable[[Scale], Measured]:
    """One of the answers; the letters are written once for all of them."""

    def measure(scale: Scale) -> Measured:
        size = scale.of(1_000_000, 1_000)
        if size not in _answered:
            _answered[size] = answers(scale)
        return _answered[size][name]

    measure.__doc__ = _DOCS[name]
    return measure


_DOCS = {
    "newest": "The newest 50 of a state and category among 1,000,000 letters.",
    "groups": "The overview of groups, with their states and sources, among 1,000,000 letters.",
}

CELLS = [
    Cell(name="postgresql_store/record", unit="letters/s", measure=record, target=Target(ratio=0.7)),
    Cell(
        name="postgresql_store/newest",
        unit="ms p99",
        measure=_cell("newest"),
        target=Target(most=20.0),
        less_is_better=True,
    ),
    Cell(
        name="postgresql_store/groups",
        unit="ms p99",
        measure=_cell("groups"),
        target=Target(most=20.0),
        less_is_better=True,
    ),
]
