"""How SQLite goes about statements that meet a million letters: it neither sorts nor reads more than it has to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.clock import SystemClock
from redrive.database import clauses, close_database, open_database
from redrive.forensics.query import Query
from redrive.model import Category, State
from redrive.stores.sqlite import SqliteStore

SQL = clauses("letters")
WIDE = [
    Query(),
    Query(states=(State.PENDING,)),
    Query(categories=(Category.NETWORK, Category.RESOURCE)),
    Query(sources=("orders", "emails")),
    Query(groups=("a",), states=(State.EXHAUSTED,)),
    Query(tenants=("acme",)),
    Query(text="timeout"),
]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    close_database(open_database(f"sqlite:///{tmp_path}/letters.db"))
    connection = sqlite3.connect(tmp_path / "letters.db")
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, statement: str, parameters: dict[str, object]) -> str:
    return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))


@pytest.mark.parametrize("query", WIDE, ids=str)
async def test_a_replay_is_frozen_without_sorting_all_that_it_selects(query: Query, tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/letters.db")
    seen: list[str] = []
    await store._access.write(lambda connection: connection.set_trace_callback(seen.append))
    await store.ledger.freeze("r", query, now=SystemClock().now())
    await store.aclose()
    (freeze,) = [statement for statement in seen if "'selected'" in statement]
    with sqlite3.connect(tmp_path / "letters.db") as connection:
        assert "TEMP B-TREE" not in plan(connection, freeze, {})


def test_only_the_letters_of_a_batch_are_read_to_count_it(connection: sqlite3.Connection) -> None:
    for statement in ("count_new", "add_groups"):
        found = plan(connection, SQL[statement], {"before": 5, "joined": "[]"})
        assert "SCAN letters" not in found
        assert "letters_group" not in found
