"""Letters in SQLite: recording them, finding them among a million, and the memory of going through all of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.actors import acting
from benchmarks.corpus import INSERT, Corpus, connect, corpus, letters_table, rows
from benchmarks.harness import (
    Cell,
    Contender,
    Measured,
    Numbers,
    Scale,
    Target,
    async_rate,
    in_loop,
    percentiles,
    rate,
    say,
    scratch,
    side_by_side,
)
from benchmarks.samples import BATCH, batches, fresh
from redrive import Redrive
from redrive.cli.commands.transfer import counted
from redrive.cli.progress import Bar
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.forensics.transfer import line_of
from redrive.model import Category, Letter, State
from redrive.service import Service
from redrive.stores.sqlite import SqliteStore

Answers = Callable[[], list[float]]  # seconds of each
_FRAME_MS = 20.0  # what a person may wait for a page of the console
_FLAT_MB = 64.0  # three connections with 16 MB of SQLite's cache each, and a page of letters
_COLUMNS = "seq, created_at, state, updated_at, next_retry_at, owner, retries, resends, replay, body, document"
_NEWEST = f"SELECT {_COLUMNS} FROM letters WHERE state = ? AND category = ? ORDER BY created_at DESC, seq DESC LIMIT 50"
_GROUPED = "SELECT group_id, count(*), min(created_at), max(created_at) FROM letters GROUP BY group_id"
"""What the index on groups alone can answer: without the states and sources that ours has, which take seconds."""


# -- recording -------------------------------------------------------------------------------------------------------


def record(scale: Scale) -> Measured:
    """Rows a second into an empty file, beside a bare `executemany` of the same rows into the same table without
    secondary indexes. The bare one gets its rows encoded beforehand; ours encodes as it goes."""
    count = scale.of(20_000, 1_000)
    with _fresh() as (ours, bare):
        return _recorded(scale, ours, bare, 0, count)


def record_on_million(scale: Scale) -> Measured:
    """The same into files that hold a million letters already."""
    held = corpus(scale.of(1_000_000, 2_000))
    return _recorded(scale, held.redrive, held.bare, held.count, scale.of(20_000, 1_000))


def _recorded(scale: Scale, ours: Path, bare: Path, before: int, count: int) -> Measured:
    new = list(fresh(before, count))
    encoded = list(rows(new))
    figures = side_by_side(
        {
            "redrive": lambda: _undone(ours, before, lambda: in_loop(_record(ours, new))),
            "executemany": lambda: _undone(bare, before, lambda: _insert(bare, encoded)),
        },
        scale.rounds,
    )
    size = sum(len(part) for row in encoded for part in row if isinstance(part, str | bytes)) / count
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        settings={"letters": count, "batch": BATCH, "bytes_a_row": round(size), "held_before": before},
    )


def imported(scale: Scale) -> Measured:
    """Letters of an export read back, as `redrive import` does it, beside `record` of the same letters."""
    count = scale.of(20_000, 1_000)
    new = list(fresh(0, count))
    lines = [line_of(letter) for letter in new]
    with _fresh() as (ours, bare):
        other = bare.with_name("other.db")
        in_loop(SqliteStore(f"sqlite:///{other}").aclose())
        figures = side_by_side(
            {
                "redrive": lambda: _undone(ours, 0, lambda: in_loop(_import(ours, lines))),
                "record": lambda: _undone(other, 0, lambda: in_loop(_record(other, new))),
            },
            scale.rounds,
        )
    size = round(sum(map(len, lines)) / count)
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        settings={"letters": count, "batch": BATCH, "bytes_a_line": size},
    )


async def _import(path: Path, lines: Sequence[bytes]) -> float:
    async with Redrive(transport=f"sqlite:///{path}", settings=Settings()) as app:
        service = Service(app)
        with Bar("importing, bytes", sum(map(len, lines))) as bar:
            return await async_rate(len(lines), service.import_letters(counted(lines, bar), actor=acting("bench")))


async def _record(path: Path, new: Sequence[Letter]) -> float:
    store = SqliteStore(f"sqlite:///{path}")

    async def all() -> None:
        for some in batches(new):
            await store.letters.record(some)

    try:
        return await async_rate(len(new), all())
    finally:
        await store.aclose()


def _insert(path: Path, encoded: Sequence[tuple[object, ...]]) -> float:
    connection = connect(path)

    def all() -> None:
        for some in batches(encoded):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT, some)
            connection.execute("COMMIT")

    try:
        return rate(len(encoded), all)
    finally:
        connection.close()


def _undone(path: Path, before: int, measure: Callable[[], float]) -> float:
    """Measure, then take back what was added, so that every round starts from the same."""
    try:
        return measure()
    finally:
        connection = connect(path)
        connection.execute("DELETE FROM letters WHERE seq > ?", (before,))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()


@contextmanager
def _fresh() -> Iterator[tuple[Path, Path]]:
    directory = scratch() / "letters-record"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    ours, bare = directory / "redrive.db", directory / "bare.db"
    connection = connect(bare)
    connection.executescript(letters_table())
    connection.close()
    in_loop(SqliteStore(f"sqlite:///{ours}").aclose())
    try:
        yield ours, bare
    finally:
        shutil.rmtree(directory, ignore_errors=True)


# -- finding ---------------------------------------------------------------------------------------------------------


def newest(scale: Scale) -> Measured:
    """The newest 50 of a state and category among a million, as the console asks for them."""
    held = corpus(scale.of(1_000_000, 2_000))
    pairs = list(product((State.PENDING, State.EXHAUSTED, State.RESOLVED, State.ARCHIVED), Category))
    queries = [Query(states=(state,), categories=(category,)) for state, category in pairs]
    statements = [(_NEWEST, (str(state), str(category))) for state, category in pairs]
    times = scale.of(500, 20)
    return _latencies(
        scale,
        held,
        lambda: in_loop(_asked(held, lambda service, n: service.letters(queries[n % len(queries)]), times)),
        {"bare select, same index": lambda: _selected(held, statements, times)},
    )


def groups(scale: Scale) -> Measured:
    """The overview of the groups of a million letters: all of them, and those that wait."""
    held = corpus(scale.of(1_000_000, 2_000))
    queries = [Query(), Query(states=(State.PENDING,))]
    times = scale.of(300, 20)
    return _latencies(
        scale,
        held,
        lambda: in_loop(_asked(held, lambda service, n: service.groups(queries[n % 2]), times)),
        {"bare GROUP BY of an index": lambda: _selected(held, [(_GROUPED, ())], scale.of(20, 5))},
    )


async def _asked(held: Corpus, ask: Callable[[Service, int], Awaitable[Any]], times: int) -> list[float]:
    """Seconds of each answer, after some to warm up."""
    async with Redrive(transport=held.url, settings=Settings()) as app:
        service = Service(app)
        took = []
        for number in range(-(times // 10), times):
            began = time.perf_counter()
            await ask(service, number)
            took.append(time.perf_counter() - began)
        return took[-times:]


def _selected(held: Corpus, statements: Sequence[tuple[str, tuple[str, ...]]], times: int) -> list[float]:
    connection = connect(held.redrive)
    took = []
    for number in range(-(times // 10), times):
        statement, parameters = statements[number % len(statements)]
        began = time.perf_counter()
        connection.execute(statement, parameters).fetchall()
        took.append(time.perf_counter() - began)
    connection.close()
    return took[-times:]


def _latencies(scale: Scale, held: Corpus, ours: Answers, peers: dict[str, Answers]) -> Measured:
    """The percentiles of the calmest round: a neighbour's work is not in our answer."""
    seen: dict[str, list[Numbers]] = {name: [] for name in ("redrive", *peers)}

    def measured(name: str, answers: Answers) -> Contender:
        def one() -> float:
            seen[name].append(percentiles(answers()))
            return seen[name][-1]["p99"]

        return one

    contenders = {name: measured(name, answers) for name, answers in {"redrive": ours, **peers}.items()}
    figures = side_by_side(contenders, scale.rounds, of=min)
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        details={name: min(rounds, key=lambda one: one["p99"]) for name, rounds in seen.items()},
        settings={"letters": held.count, "through": "Service, as the console does"},
    )


# -- memory ----------------------------------------------------------------------------------------------------------


def memory(scale: Scale) -> Measured:
    """Megabytes by which a process grows at most while it goes through all letters."""
    held = corpus(scale.of(1_000_000, 2_000))
    details: dict[str, Any] = {}
    for what in ("list", "export", "replay"):
        say(f"  {what}")
        with _copy(held.redrive, what == "replay") as path:
            details[what] = _child(path, what)
    growth = max(one["growth"] for one in details.values())
    return Measured(redrive=growth, peers={}, details=details, settings={"letters": held.count})


def _child(path: Path, what: str) -> dict[str, Any]:
    """In a process of its own, so that nothing else is counted."""
    command = [sys.executable, "-m", "benchmarks.walk", what, str(path)]
    line = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found: dict[str, Any] = msgspec.json.decode(line)
    return found


@contextmanager
def _copy(path: Path, wanted: bool) -> Iterator[Path]:
    """A replay changes the letters, so it gets its own."""
    if not wanted:
        yield path
        return
    copy = scratch() / "letters-replay.db"
    for leftover in scratch().glob("letters-replay.db*"):
        leftover.unlink()
    shutil.copyfile(path, copy)
    try:
        yield copy
    finally:
        for leftover in scratch().glob("letters-replay.db*"):
            leftover.unlink()


CELLS = (
    Cell(name="letters/record", unit="letters/s", measure=record, target=Target(ratio=0.6)),
    Cell(name="letters/import", unit="letters/s", measure=imported, target=Target(ratio=0.5)),
    Cell(name="letters/record-on-million", unit="letters/s", measure=record_on_million, target=Target(ratio=0.5)),
    Cell(name="letters/newest", unit="ms p99", measure=newest, target=Target(most=_FRAME_MS), less_is_better=True),
    Cell(name="letters/groups", unit="ms p99", measure=groups, target=Target(most=_FRAME_MS), less_is_better=True),
    Cell(name="letters/memory", unit="MB", measure=memory, target=Target(most=_FLAT_MB), less_is_better=True),
)
