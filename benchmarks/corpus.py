"""A database with very many letters, made once and kept outside the tree.

It is made faster than `record` would: without indexes, which are built at the end. What comes out is the same. Beside
it lies the same table with the same rows and no secondary index: what a bare `executemany` would have made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path

from msgspec import Struct

from benchmarks import samples
from benchmarks.harness import say, scratch
from redrive.drivers.sqlite.database import SCHEMA_VERSION, SCRIPTS, clauses, sql
from redrive.model import Letter
from redrive.stores.shape import NATIVE
from redrive.stores.sqlite.access import Access
from redrive.stores.sqlite.letters import SqliteLetters

_SQL = clauses("redrive.stores.sqlite", "letters")
_TOGETHER = 10_000
COUNTED = """
INSERT INTO tallies SELECT group_id, source, state, category, count(*) FROM letters GROUP BY 1, 2, 3, 4;
INSERT INTO groups SELECT group_id, error_type, error_message, category, min(updated_at), max(updated_at) FROM letters
GROUP BY group_id;
INSERT INTO hits SELECT group_id, tenant, count(*) FROM letters WHERE tenant IS NOT NULL GROUP BY 1, 2;
INSERT INTO unsearched (seq) SELECT seq FROM letters;
"""
INSERT = _SQL["insert"].partition("ON CONFLICT")[0]
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "cache_size=-16000", "wal_autocheckpoint=1000", "temp_store=MEMORY")
"""Those of redrive.drivers.sqlite.database: what is bare is bare of everything else."""


class Corpus(Struct, frozen=True):
    """Both files, and how many letters are in each."""

    redrive: Path
    bare: Path
    count: int

    @property
    def url(self) -> str:
        return f"sqlite:///{self.redrive}"


def corpus(count: int) -> Corpus:
    """Made now, if it was not made before for this schema and these samples."""
    made = _named(count)
    if not made.redrive.exists() or not made.bare.exists():
        _remove_older(count)
        say(f"  making {count:,} letters in {made.redrive} (once)")
        _make(made)
    return made


def letters_table() -> str:
    """The statement that makes the table `letters`, and none of those for its indexes and triggers."""
    schema, more = sql("redrive.drivers.sqlite", "schema"), sql("redrive.drivers.sqlite", "versions")
    start, added = schema.index("CREATE TABLE letters"), more.index("ALTER TABLE letters")
    return f"{schema[start : schema.index(');', start) + 2]}\n{more[added : more.index(';', added) + 1]}"


def _all_scripts() -> str:
    return "\n\n".join(sql("redrive.drivers.sqlite", name) for name in SCRIPTS)


def rows(letters: Iterable[Letter]) -> Iterator[tuple[object, ...]]:
    """Letters as the store binds them."""
    row = SqliteLetters(Access.__new__(Access), NATIVE)._row
    return (row(letter) for letter in letters)


def connect(path: Path, pragmas: tuple[str, ...] = PRAGMAS) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _named(count: int) -> Corpus:
    source = _all_scripts() + Path(samples.__file__).read_text() + _SQL["insert"]
    key = sha256(source.encode()).hexdigest()[:12]
    stem = f"letters-{count}-{key}"
    return Corpus(scratch() / f"{stem}.db", scratch() / f"{stem}-bare.db", count)


def _remove_older(count: int) -> None:
    for path in scratch().glob(f"letters-{count}-*"):
        path.unlink()


def _make(made: Corpus) -> None:
    """Under another name until it is whole: an interrupted one is made again."""
    unsafe = ("journal_mode=OFF", "synchronous=OFF", "cache_size=-512000", "temp_store=FILE")
    parts = [path.with_suffix(".part") for path in (made.redrive, made.bare)]
    for part in parts:
        part.unlink(missing_ok=True)
    full, bare = (connect(part, unsafe) for part in parts)
    tables, indexes = parts_of_schema()
    full.executescript(tables)
    bare.executescript(letters_table())
    source = rows(samples.letters(0, made.count))
    while some := list(islice(source, _TOGETHER)):
        for connection in (full, bare):
            connection.execute("BEGIN")
            connection.executemany(INSERT, some)
            connection.execute("COMMIT")
    full.executescript(indexes)
    full.executescript(COUNTED)
    full.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    for connection, part, path in zip((full, bare), parts, (made.redrive, made.bare), strict=True):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
        part.rename(path)


def parts_of_schema() -> tuple[str, str]:
    """The tables, and what comes after them: indexes on letters."""
    statements = _all_scripts().split("\n\n")
    whole = "\n\n".join(statements)
    lines = [line for line in whole.splitlines() if line.startswith("CREATE INDEX letters_")]
    return "\n".join(line for line in whole.splitlines() if line not in lines), "\n".join(lines)
