"""Ctrl-C in the middle of archive, import, export and purge: it is said how far it came, and the same again goes on."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.forensics.query import Query
from redrive.model import State
from tests.cli.world import SOON, Shell, letter

MANY = 1_200
# Interrupts itself, as a person would, when so many letters went through that method of the store.
PROGRAM = """
import os, signal, sys
from redrive.cli import main
from redrive.stores.sqlite.letters import SqliteLetters

method, words = sys.argv[1], sys.argv[2:]
real, calls = getattr(SqliteLetters, method), 0

async def interrupted(self, *arguments, **options):
    global calls
    calls += 1
    if calls == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return await real(self, *arguments, **options)

setattr(SqliteLetters, method, interrupted)
main(words, prog_name="redrive")
"""


@pytest.fixture
def full(shell: Shell) -> Shell:
    shell.keep([letter(number) for number in range(MANY)])
    return shell


def interrupt(shell: Shell, method: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, method, *words],
        cwd=shell.place,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SOON,
    )
    assert done.returncode == 130, (done.returncode, done.stderr)
    assert done.stderr.startswith("Error: interrupted: "), done.stderr
    return done.stderr


def number_in(said: str) -> int:
    return int(said.removeprefix("Error: interrupted: ").partition(" ")[0].replace(",", ""))


def offered(said: str) -> list[str]:
    """The command that was said to go on with."""
    [line] = [line for line in said.splitlines() if "redrive " in line]
    return shlex.split(line[line.index("redrive ") :])[1:]


def test_archive(full: Shell) -> None:
    said = interrupt(full, "move", "archive", "--source", "orders", "--yes", "--store", "sqlite:///redrive.db")
    done = full.ask(lambda service: service.count(Query(states=(State.ARCHIVED,))))
    assert 0 < number_in(said) <= done < MANY
    assert f"of {MANY:,} letters archived" in said
    assert offered(said) == ["archive", "--source", "orders", "--yes", "--store", "sqlite:///redrive.db"]
    assert full(*offered(said)).stderr == f"{MANY - done:,} letters archived\n"
    assert full.ask(lambda service: service.count(Query(states=(State.ARCHIVED,)))) == MANY


def test_import(full: Shell) -> None:
    full("export", "all.jsonl")
    said = interrupt(full, "record", "--store", "sqlite:///new.db", "import", "all.jsonl")
    done = full.ask(lambda service: service.count(Query()), "new.db")
    assert 0 < number_in(said) <= done < MANY
    full(*offered(said))
    full("export", "again.jsonl", "--store", "sqlite:///new.db")
    assert full.place.joinpath("again.jsonl").read_bytes() == full.place.joinpath("all.jsonl").read_bytes()


def test_export_to_a_file_that_was_there(full: Shell, place: Path) -> None:
    place.joinpath("all.jsonl").write_text("precious")
    said = interrupt(full, "search", "export", "all.jsonl", "--force")
    assert f"of {MANY:,} letters read, and all.jsonl is as it was" in said
    assert [file.name for file in place.glob("all*")] == ["all.jsonl"]
    assert place.joinpath("all.jsonl").read_text() == "precious"
    full(*offered(said))
    assert len(place.joinpath("all.jsonl").read_bytes().splitlines()) == MANY


def test_export_to_a_new_file(full: Shell, place: Path) -> None:
    said = interrupt(full, "search", "export", "all.jsonl")
    assert "all.jsonl was not made" in said
    assert list(place.glob("all*")) == []
    full(*offered(said))


def test_purge(full: Shell) -> None:
    said = interrupt(full, "prune", "purge", "--state", "pending", "--yes")
    left = full.ask(lambda service: service.count(Query()))
    assert 0 < number_in(said) <= MANY - left < MANY
    full(*offered(said))
    assert full.ask(lambda service: service.count(Query())) == 0


def test_an_interrupted_archive_is_in_the_audit_trail(full: Shell) -> None:
    interrupt(full, "move", "archive", "--all", "--yes")
    [entry] = full.ask(lambda service: service.audit(limit=5))
    assert "interrupted after " in str(entry)
