"""A store that the version before made opens, keeps its letters, and its letters can be edited."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from redrive.drivers.postgresql.link import Link
from redrive.drivers.postgresql.migrations import Migrations
from redrive.drivers.sqlite.database import SCRIPTS, sql
from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.forensics.series import DAY, HOUR, MINUTE, STEPS, Kept, SeriesQuery, floored, minute_of
from redrive.model import Edit, Letter, Revision, State, letter_id, version_of
from redrive.stores.base import Hit, Store
from redrive.stores.postgresql import PostgresStore
from redrive.stores.postgresql.access import TABLES
from redrive.stores.postgresql.codec import INSERTED, row_of
from redrive.stores.shape import NATIVE
from redrive.stores.sqlite import SqliteStore
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START, ManualClock
from redrive.testing.stores.backend import LATER
from redrive.upkeep.series import count_past, roll_up

pytestmark = pytest.mark.asyncio
LETTER = make_letter(make_message(id="m-1", body=b"as it came", tenant="acme"), state=State.EXHAUSTED)
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


async def check_counts(store: Store) -> None:
    """What died before there were counts over time is counted, once; what dies from now on is counted beside it."""
    await store.letters.record([make_letter(make_message(id="m-3"), at=LATER)])
    for _ in range(2):
        await count_past(store, ManualClock(LATER), Kept())
    await roll_up(store)
    found = {}
    for step in STEPS:
        points = await store.series.read(SeriesQuery(step=step, since=0, until=int(LATER.timestamp()) + DAY))
        found[step] = [(point.at, point.name, point.number) for point in points]
    before, now = minute_of(START), minute_of(LATER)
    assert found == {
        MINUTE: [(before, "buried", 2), (now, "buried", 1)],
        HOUR: [(before, "buried", 2), (now, "buried", 1)],
        DAY: [(floored(before, DAY), "buried", 3)],
    }


async def test_a_file_of_sqlite_from_before_there_were_counts(tmp_path: Path) -> None:
    await _old_file(tmp_path, SCRIPTS[: SCRIPTS.index("series")])
    store = SqliteStore(f"sqlite:///{tmp_path / 'old.db'}")
    await check_counts(store)
    await check(store)
    await store.aclose()


async def test_a_schema_of_postgresql_from_before_there_were_counts(postgresql_url: str) -> None:
    await _old_schema(postgresql_url, 3)
    store = PostgresStore(postgresql_url)
    await check_counts(store)
    await check(store)
    await store.aclose()


async def test_a_file_of_sqlite(tmp_path: Path) -> None:
    await _old_file(tmp_path, SCRIPTS[:1])
    store = SqliteStore(f"sqlite:///{tmp_path / 'old.db'}")
    await check(store)
    await store.aclose()


async def test_a_file_of_sqlite_that_had_an_index_of_the_tenants_of_groups(tmp_path: Path) -> None:
    await _old_file(tmp_path, SCRIPTS[: SCRIPTS.index("hits")])
    old = sqlite3.connect(tmp_path / "old.db")
    old.execute("CREATE INDEX letters_group_tenant ON letters (group_id, tenant) WHERE tenant IS NOT NULL")
    old.close()
    store = SqliteStore(f"sqlite:///{tmp_path / 'old.db'}")
    another = make_letter(make_message(tenant="globex"), group=LETTER.group)
    await store.letters.record([LETTER, another])
    assert await store.letters.tenants([LETTER.group], most=3) == {LETTER.group: Hit(("acme", "globex"), True)}
    await check(store)
    assert await store.letters.tenants([LETTER.group], most=3) == {LETTER.group: Hit(("globex",), True)}
    await store.aclose()


async def test_a_schema_of_postgresql(postgresql_url: str) -> None:
    await _old_schema(postgresql_url, 1)
    store = PostgresStore(postgresql_url)
    await check(store)
    assert await store.is_made()
    await store.aclose()


async def _old_file(tmp_path: Path, scripts: Sequence[str]) -> None:
    """A file as those scripts make it, with both letters."""
    new = SqliteStore(f"sqlite:///{tmp_path / 'new.db'}")
    await new.letters.record([LETTER, ARCHIVED])
    await new.aclose()
    old = sqlite3.connect(tmp_path / "old.db")
    old.create_function("letter_id", 2, letter_id, deterministic=True)
    for script in scripts:
        old.executescript(sql("redrive.drivers.sqlite", script))
    old.execute("ATTACH ? AS new", (str(tmp_path / "new.db"),))
    for table in ("letters", "tallies", "groups"):
        columns = ", ".join(row[1] for row in old.execute(f"PRAGMA main.table_info({table})"))
        old.execute(f"DELETE FROM main.{table}")  # what a trigger has made of those before
        old.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    old.commit()
    old.execute(f"PRAGMA user_version={len(scripts)}")
    old.close()


async def _old_schema(url: str, version: int) -> None:
    """A schema of that version, with both letters."""
    before = Migrations(TABLES.component, TABLES.package)
    before.__dict__["scripts"] = TABLES.scripts[:version]
    link = Link(url, migrations=before, unavailable=StoreUnavailable)
    for letter in (LETTER, ARCHIVED):
        await link.fetch(*_insert(letter))
    assert await link.version() == version
    await link.aclose()


def _insert(letter: Letter) -> tuple[str, dict[str, object]]:
    row = dict(zip(INSERTED, row_of(letter, NATIVE), strict=True))
    del row["archived_from"]
    row |= {"is_text": True, "searched": ""}  # which the tables of that version want
    types = {**INSERTED, "is_text": "bool", "searched": "text"}
    values = ", ".join(f"%({name})s::{types[name]}" for name in row)
    return f"INSERT INTO redrive.letters ({', '.join(row)}) VALUES ({values}) RETURNING seq", row
