"""How SQLite goes about statements that meet a million letters: it neither sorts nor reads more than it has to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from redrive.clock import SystemClock
from redrive.drivers.sqlite.database import close_database, open_database
from redrive.forensics.query import Query
from redrive.model import Category, State, letter_id
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.letters import _ordered, _search

NOW = SystemClock().now()
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
    with closing(sqlite3.connect(tmp_path / "letters.db")) as connection:
        assert "TEMP B-TREE" not in plan(connection, freeze, {})


NARROW = {
    "letters_lease": Query(lapsed=NOW, states=(State.RETRYING,)),
    "letters_expiry": Query(expired=NOW, states=(State.RESOLVED, State.PENDING)),
    "sqlite_autoindex_letters_1": Query(message_ids=("a", "b"), states=(State.PENDING,)),
}


@pytest.mark.parametrize("index", NARROW)
def test_what_few_letters_have_is_found_by_the_index_of_only_those(connection: sqlite3.Connection, index: str) -> None:
    """Upkeep asks these all the time, of a million letters that have nothing of it."""
    connection.create_function("letter_id", 2, letter_id, deterministic=True)
    statement, parameters = _search(NARROW[index], None, 50, oldest_first=True)
    assert index in plan(connection, statement, parameters)
    assert "letters_state" not in plan(connection, statement, parameters)


@pytest.mark.parametrize("query", WIDE, ids=str)
def test_a_page_is_read_in_order_and_not_sorted(connection: sqlite3.Connection, query: Query) -> None:
    statement, parameters = _ordered(query, None, 50, oldest_first=False)
    assert "SCAN letters" not in plan(connection, statement, parameters).replace("SCAN letters USING", "")
