"""One SQLite file: who shares it, what one failing job costs the others, and what its errors say."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.drivers.sqlite.database import (
    SCHEMA_VERSION,
    Database,
    clauses,
    close_database,
    open_database,
    path_of,
)
from redrive.errors import ConfigError, Unavailable

COUNT = "SELECT count(*) FROM documents"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/redrive.db"


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    opened = open_database(url)
    yield opened
    await asyncio.to_thread(close_database, opened)


def _put(connection: sqlite3.Connection, id: str) -> str:
    connection.execute("INSERT INTO documents VALUES ('test', ?, 1, '{}')", (id,))
    return id


async def _count(database: Database) -> int:
    return int((await database.read(lambda connection: connection.execute(COUNT).fetchone()))[0])


async def test_what_was_written_is_read(database: Database) -> None:
    assert await database.write(lambda connection: _put(connection, "a")) == "a"
    assert await _count(database) == 1


async def test_writers_that_come_together_share_a_transaction(database: Database) -> None:
    hold, begun = threading.Event(), threading.Event()

    commits: list[str] = []
    changes: list[int] = []

    def slow(connection: sqlite3.Connection) -> None:
        changes.append(connection.total_changes)
        connection.set_trace_callback(commits.append)
        begun.set()
        hold.wait(10)

    first = asyncio.create_task(database.write(slow))
    await asyncio.to_thread(begun.wait, 10)
    rest = [asyncio.create_task(database.write(lambda c, n=n: _put(c, str(n)))) for n in range(100)]  # type: ignore[misc]
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(first, *rest)
    assert commits.count("COMMIT") == 2
    assert await database.write(lambda connection: connection.total_changes) - changes[0] == 100


async def test_a_job_that_fails_takes_only_itself_back(database: Database) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        _put(connection, "half")
        raise ValueError("mine")

    jobs = [database.write(lambda c, n=n: _put(c, str(n))) for n in range(5)]  # type: ignore[misc]
    done = await asyncio.gather(*jobs[:2], database.write(fails), *jobs[2:], return_exceptions=True)
    assert [type(one).__name__ for one in done] == ["str", "str", "ValueError", "str", "str", "str"]
    assert await _count(database) == 5


async def test_a_job_that_fails_alone_leaves_nothing(database: Database) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        _put(connection, "half")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await database.write(fails)
    assert await _count(database) == 0


async def test_a_writer_that_is_cancelled_costs_the_others_nothing(database: Database) -> None:
    jobs = [asyncio.create_task(database.write(lambda c, n=n: _put(c, str(n)))) for n in range(10)]  # type: ignore[misc]
    await asyncio.sleep(0)
    jobs[3].cancel()
    done = await asyncio.gather(*jobs, return_exceptions=True)
    assert [one for one in done if isinstance(one, str)] == [str(n) for n in range(10) if n != 3]


async def test_everybody_in_the_process_gets_the_same_one(url: str) -> None:
    first, second = open_database(url), open_database(url)
    assert first is second
    await asyncio.to_thread(close_database, first)
    assert await _count(second) == 0
    await asyncio.to_thread(close_database, second)
    third = open_database(url)
    assert third is not first
    await asyncio.to_thread(close_database, third)


async def test_what_is_closed_says_so_and_does_not_hang(url: str) -> None:
    database = open_database(url)
    await asyncio.to_thread(close_database, database)
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable, match="closed"):
            await database.write(lambda connection: _put(connection, "a"))
        with pytest.raises(Unavailable, match="closed"):
            await _count(database)


def test_what_was_asked_before_the_end_is_still_done(url: str) -> None:
    database = open_database(url)
    futures = [database.submit(lambda c, n=n: _put(c, str(n))) for n in range(50)]  # type: ignore[misc]
    close_database(database)
    assert [future.result(5) for future in futures] == [str(n) for n in range(50)]


def test_several_processes_may_make_the_same_new_file_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from redrive.drivers.sqlite.database import *; sys.stdin.readline(); "
        f"d = open_database('sqlite:///{tmp_path}/new.db'); "
        "d.submit(lambda c: c.execute('SELECT 1').fetchone()).result(20); close_database(d); print('fine')"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.communicate(timeout=30)[0].strip() for child in children] == ["fine"] * 4


def test_a_file_of_a_newer_redrive_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "redrive.db"
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(ConfigError, match="written by a newer Redrive") as caught:
        open_database(f"sqlite:///{file}")
    assert str(file) not in _open_files(), f"{caught.value}, and it is still open"


def _open_files() -> set[str]:
    return {str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()}


def test_a_file_that_is_not_sqlites_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(Unavailable, match="this one is not SQLite's"):
        open_database(f"sqlite:///{file}")
    assert file.read_text().startswith("Dear")


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"nowhere/redrive\.db.*does its directory exist"):
        open_database(f"sqlite:///{tmp_path}/nowhere/redrive.db")


async def test_an_error_of_sqlite_is_ours_and_says_what_to_do(database: Database) -> None:
    def full(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(Unavailable, match="make room on the disk") as caught:
        await database.write(full)
    assert caught.value.name == str(database.path)
    assert await database.write(lambda connection: _put(connection, "a")) == "a"


async def test_the_reason_is_not_lost_where_several_jobs_failed_together(database: Database) -> None:
    def full(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")  # as SQLite itself does when the disk is full
        raise sqlite3.OperationalError("database or disk is full")

    jobs = [database.write(lambda c, n=n: _put(c, str(n))) for n in range(3)]  # type: ignore[misc]
    done = await asyncio.gather(*jobs, database.write(full), return_exceptions=True)
    reasons = {str(one) for one in done if isinstance(one, Unavailable)}
    assert all("disk is full" in reason for reason in reasons)
    assert reasons
    assert await database.write(lambda connection: _put(connection, "later")) == "later"


@pytest.mark.parametrize("wrong", ["sqlite://redrive.db", "sqlite:///", "sqlite:redrive.db", "postgres:///x", ""])
def test_a_url_that_names_no_file_shows_how_to_write_one(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///relative/path\.db"):
        path_of(wrong)


def test_a_url_names_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert path_of("sqlite:///redrive.db") == tmp_path / "redrive.db"
    assert path_of("sqlite:////var/lib/redrive.db") == Path("/var/lib/redrive.db")


@pytest.mark.parametrize(
    ("package", "name"), [("redrive.stores.sqlite", "letters"), ("redrive.transports.sqlite", "queue")]
)
def test_every_statement_has_a_name_of_its_own(package: str, name: str) -> None:
    found = clauses(package, name)
    assert len(found) > 5
    assert all(statement and not statement.endswith(";") for statement in found.values())
