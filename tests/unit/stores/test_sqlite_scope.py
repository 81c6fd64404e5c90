"""A scope in SQLite: who reaches `eu-*` sees what anybody has just written, and names are listed once for that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from redrive.forensics.query import Query
from redrive.forensics.scope import Scope
from redrive.stores.sqlite import SqliteStore
from redrive.testing.builders import make_letter, make_message

IN_SCOPE = Query(scope=Scope(sources=("mail.*",), tenants=("eu-*",)))
ANOTHER = """
import asyncio, sys
from redrive.stores.sqlite import SqliteStore
from redrive.testing.builders import make_letter, make_message

async def main():
    store = SqliteStore(sys.argv[1])
    for line in sys.stdin:
        source, tenant = line.split()
        await store.letters.record([make_letter(make_message(source=source, tenant=tenant))])
        print("recorded", flush=True)
    await store.aclose()

asyncio.run(main())
"""


class Another:
    """Another process that records letters into the same file."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-c", ANOTHER, url]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def record(self, source: str, tenant: str) -> None:
        """Record a letter; it is durable when this returns."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{source} {tenant}\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline() == "recorded\n"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/redrive.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(url)
    yield store
    await store.aclose()


@pytest.fixture
def another(url: str, store: SqliteStore) -> Iterator[Another]:
    another = Another(url)
    yield another
    another.child.communicate(timeout=30)


async def _tenants(store: SqliteStore) -> list[str]:
    return sorted(letter.message.tenant or "" for letter in (await store.letters.search(IN_SCOPE)).letters)


async def test_what_another_process_recorded_is_in_scope_at_the_very_next_question(
    store: SqliteStore, another: Another
) -> None:
    expected: list[str] = []
    for number in range(8):
        for _ in range(3):  # each reader has its own look at the file
            assert await _tenants(store) == expected
        another.record(f"mail.{number % 3}", f"eu-{number}")
        another.record(f"mail.{number % 3}", f"us-{number}")
        expected.append(f"eu-{number}")
        assert await _tenants(store) == expected


async def test_what_was_written_here_is_in_scope_at_the_very_next_question(store: SqliteStore) -> None:
    for number in range(8):
        await store.letters.record([make_letter(make_message(source=f"mail.{number}", tenant=f"eu-{number}"))])
        assert len(await _tenants(store)) == number + 1


async def test_the_names_are_not_listed_again_while_nobody_writes(store: SqliteStore) -> None:
    await store.letters.record([make_letter(make_message(source="mail.a", tenant="eu-a"))])
    listed: list[str] = []
    for _ in range(4):
        assert await _tenants(store) == ["eu-a"]
    for connection in store._database._connections:
        connection.set_trace_callback(lambda sql: listed.append(sql) if "FROM tallies" in sql else None)
    for _ in range(20):
        assert await _tenants(store) == ["eu-a"]
    assert len(listed) <= 1, "a reader that had not been asked before lists them once"
    await store.letters.record([make_letter(make_message(source="mail.b", tenant="eu-b"))])
    assert await _tenants(store) == ["eu-a", "eu-b"]
