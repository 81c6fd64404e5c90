"""How SQLite goes about statements that meet a million letters: it neither sorts nor reads more than it has to."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from redrive.clock import SystemClock
from redrive.forensics.query import Query
from redrive.model import Category, State, letter_id
from redrive.stores.sqlite import SqliteStore

NOW = SystemClock().now()
WIDE = [
    Query(),
    Query(states=(State.PENDING,)),
    Query(categories=(Category.NETWORK, Category.RESOURCE)),
    Query(sources=("orders", "emails")),
    Query(groups=("a",), states=(State.EXHAUSTED,)),
    Query(tenants=("acme",)),
]


def plan(folder: Path, statement: str) -> str:
    with closing(sqlite3.connect(folder / "letters.db")) as connection:
        connection.create_function("letter_id", 2, letter_id, deterministic=True)
        return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What SQLite is asked from now on, on whichever connection, with the values."""
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*place: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*place, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return statements


@pytest.fixture
async def store(seen: list[str], tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{tmp_path}/letters.db")
    await store.check()
    seen.clear()
    yield store
    await store.aclose()


@pytest.mark.parametrize("query", WIDE, ids=str)
async def test_a_replay_is_frozen_without_sorting_all_that_it_selects(
    query: Query, store: SqliteStore, seen: list[str], tmp_path: Path
) -> None:
    await store.ledger.freeze("r", query, now=NOW)
    (freeze,) = [statement for statement in seen if "'selected'" in statement]
    assert "TEMP B-TREE" not in plan(tmp_path, freeze)


NARROW = {
    "letters_lease": Query(lapsed=NOW, states=(State.RETRYING,)),
    "letters_expiry": Query(expired=NOW, states=(State.RESOLVED, State.PENDING)),
    "sqlite_autoindex_letters_1": Query(message_ids=("a", "b"), states=(State.PENDING,)),
}


def _search(seen: list[str]) -> str:
    return next(statement for statement in reversed(seen) if "FROM letters" in statement)


@pytest.mark.parametrize("index", NARROW)
async def test_what_few_letters_have_is_found_by_the_index_of_only_those(
    index: str, store: SqliteStore, seen: list[str], tmp_path: Path
) -> None:
    """Upkeep asks these all the time, of a million letters that have nothing of it."""
    await store.letters.search(NARROW[index], limit=50, oldest_first=True)
    steps = plan(tmp_path, _search(seen))
    assert index in steps
    assert "letters_state" not in steps


@pytest.mark.parametrize("query", WIDE, ids=str)
async def test_a_page_is_read_in_order_and_not_sorted(
    query: Query, store: SqliteStore, seen: list[str], tmp_path: Path
) -> None:
    await store.letters.search(query, limit=50)
    assert "SCAN letters" not in plan(tmp_path, _search(seen)).replace("SCAN letters USING", "")
