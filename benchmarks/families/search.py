"""Searching for a text among a million letters in SQLite, beside a bare FTS5 table with the same texts."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from benchmarks.corpus import Corpus, connect, corpus
from benchmarks.harness import Cell, Measured, Numbers, Scale, Target, in_loop, percentiles, say, side_by_side
from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import Category, State
from redrive.service import Service

_WAIT_MS = 300.0  # what a person may wait for the answer to a search
_BARE = "SELECT rowid FROM searchable WHERE searchable MATCH ? ORDER BY rowid DESC LIMIT 50"
_BARE_COUNT = "SELECT count(*) FROM searchable WHERE searchable MATCH ?"

Ask = Callable[[Service, Query], Awaitable[Any]]


class _Search(Struct, frozen=True):
    """What is asked: a query for each number, of so many letters, and what a bare table is asked for the same."""

    query: Callable[[int, int], Query]
    ask: Ask = lambda service, query: service.letters(query)
    bare: str = _BARE
    times: int = 100


def _text(text: str, **more: Any) -> Callable[[int, int], Query]:
    return lambda number, count: Query(text=text, **more)


def _order(number: int, count: int) -> Query:
    """One letter has it; its trigrams are those of a million other numbers."""
    return Query(text=f"ord-{(number * 7919) % count:09d}")


def _customer(number: int, count: int) -> Query:
    """One letter in five thousand has it."""
    return Query(text=f"customer-{(number * 37) % 5000:04d}@example.com")


_SEARCHES = {
    "rare": _Search(_order),
    "few": _Search(_customer),
    "common": _Search(_text("sku-0001-blue")),
    "nobody": _Search(_text("nobody has this")),
    "filters": _Search(_text("connectionrefused", sources=("orders",), states=(State.PENDING,))),
    "apart": _Search(_text("connectionrefused", categories=(Category.VALIDATION,))),
    "short": _Search(_text("ab"), bare=""),
    "count": _Search(_text("connectionrefused"), lambda service, query: service.count(query), _BARE_COUNT, 10),
    "groups": _Search(_customer, lambda service, query: service.groups(query)),
    "groups-common": _Search(_text("connectionrefused"), lambda service, query: service.groups(query), _BARE_COUNT, 3),
}


def _measured(search: _Search) -> Callable[[Scale], Measured]:
    def measure(scale: Scale) -> Measured:
        held = corpus(scale.of(1_000_000, 2_000))
        in_loop(_index(held))
        times = scale.of(search.times, 3)
        seen: dict[str, list[Numbers]] = {"redrive": [], "bare FTS5": []}

        def round_of(name: str, ask: Callable[[], list[float]]) -> Callable[[], float]:
            def one() -> float:
                seen[name].append(percentiles(ask()))
                return seen[name][-1]["p99"]

            return one

        contenders = {"redrive": round_of("redrive", lambda: in_loop(_asked(held, search, times)))}
        if search.bare:
            contenders["bare FTS5"] = round_of("bare FTS5", lambda: _bare(held, search, times))
        figures = side_by_side(contenders, scale.rounds, of=min)
        return Measured(
            redrive=figures.pop("redrive"),
            peers=figures,
            details={name: min(rounds, key=lambda one: one["p99"]) for name, rounds in seen.items() if rounds},
            settings={"letters": held.count, "times": times, "through": "Service, as the console does"},
        )

    return measure


async def _index(held: Corpus) -> None:
    """Let upkeep's work be done, once: the texts of all letters."""
    async with Redrive(transport=held.url, settings=Settings()) as app:
        store: Any = app.store
        while left := await store.index_texts(10_000):
            say(f"  indexing texts, {left:,} left")


async def _asked(held: Corpus, search: _Search, times: int) -> list[float]:
    async with Redrive(transport=held.url, settings=Settings()) as app:
        service = Service(app)
        took = []
        for number in range(-1, times):
            began = time.perf_counter()
            await search.ask(service, search.query(number + 1, held.count))
            took.append(time.perf_counter() - began)
        return took[1:]


def _bare(held: Corpus, search: _Search, times: int) -> list[float]:
    connection = connect(held.redrive)
    took = []
    for number in range(-1, times):
        phrase = f'"{search.query(number + 1, held.count).text}"'
        began = time.perf_counter()
        connection.execute(search.bare, (phrase,)).fetchall()
        took.append(time.perf_counter() - began)
    connection.close()
    return took[1:]


CELLS = tuple(
    Cell(
        name=f"search/{name}",
        unit="ms p99",
        measure=_measured(search),
        target=Target(most=_WAIT_MS),
        less_is_better=True,
    )
    for name, search in _SEARCHES.items()
)
