"""A store that the version before made opens, keeps its letters, and its letters can be edited."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from redrive.drivers.postgresql.link import Link
from redrive.drivers.postgresql.migrations import Migrations
from redrive.drivers.sqlite.database import sql
from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import Edit, Letter, Revision, State, version_of
from redrive.stores.base import Store
from redrive.stores.postgresql import PostgresStore
from redrive.stores.postgresql.access import TABLES
from redrive.stores.postgresql.codec import INSERTED, row_of
from redrive.stores.shape import NATIVE
from redrive.stores.sqlite import SqliteStore
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.stores.backend import LATER

pytestmark = pytest.mark.asyncio
LETTER = make_letter(make_message(id="m-1", body=b"as it came"), state=State.EXHAUSTED)
ARCHIVED = make_letter(make_message(id="m-2"), state=State.ARCHIVED)


async def check(store: Store) -> None:
    """It has both letters, and does with them what a new store does."""
    assert await store.letters.get(LETTER.id) == LETTER
    assert await store.letters.get(ARCHIVED.id) == ARCHIVED
    edit = Edit(by="ada", at=START)
    assert await store.versions.edit([Revision(LETTER.id, 0, b"new", (), edit)]) == [LETTER.id]
    assert await store.versions.get(LETTER.id, 0) == version_of(LETTER)
    await store.letters.move([LETTER.id], expect=[State.EXHAUSTED], to=State.ARCHIVED, now=LATER)
    got = await store.letters.get(LETTER.id)
    assert got is not None
    assert got.archived_from is State.EXHAUSTED
    assert await store.letters.prune(Query(ids=(LETTER.id,)), limit=1) == [LETTER.id]
    assert await store.versions.list(LETTER.id) == []


async def test_a_file_of_sqlite(tmp_path: Path) -> None:
    new = SqliteStore(f"sqlite:///{tmp_path / 'new.db'}")
    await new.letters.record([LETTER, ARCHIVED])
    await new.aclose()
    old = sqlite3.connect(tmp_path / "old.db")
    old.executescript(sql("redrive.drivers.sqlite", "schema"))
    old.execute("ATTACH ? AS new", (str(tmp_path / "new.db"),))
    for table in ("letters", "tallies", "groups"):
        columns = ", ".join(row[1] for row in old.execute(f"PRAGMA main.table_info({table})"))
        old.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    old.commit()
    old.execute("PRAGMA user_version=1")
    old.close()
    store = SqliteStore(f"sqlite:///{tmp_path / 'old.db'}")
    await check(store)
    await store.aclose()


async def test_a_schema_of_postgresql(postgresql_url: str) -> None:
    before = Migrations(TABLES.component, TABLES.package)
    before.__dict__["scripts"] = TABLES.scripts[:1]
    link = Link(postgresql_url, migrations=before, unavailable=StoreUnavailable)
    for letter in (LETTER, ARCHIVED):
        await link.fetch(*_insert(letter))
    assert await link.version() == 1
    await link.aclose()
    store = PostgresStore(postgresql_url)
    await check(store)
    assert await store.is_made()
    await store.aclose()


def _insert(letter: Letter) -> tuple[str, dict[str, object]]:
    row = dict(zip(INSERTED, row_of(letter, NATIVE), strict=True))
    del row["archived_from"]
    row |= {"is_text": True, "searched": ""}  # which the tables of that version want
    types = {**INSERTED, "is_text": "bool", "searched": "text"}
    values = ", ".join(f"%({name})s::{types[name]}" for name in row)
    return f"INSERT INTO redrive.letters ({', '.join(row)}) VALUES ({values}) RETURNING seq", row
