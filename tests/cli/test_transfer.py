"""Letters leave and arrive to the byte."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from redrive.model import State
from tests.cli.served import on_a_store
from tests.cli.world import HEADERS, RAW, Shell, World, letter

BOTH_HOMES = True


@on_a_store
def test_an_export_imported_elsewhere_is_exported_the_same(world: World) -> None:
    world.shell("export", "letters.jsonl")
    world.shell("import", "letters.jsonl", "--store", "sqlite:///new.db")
    world.shell("export", "again.jsonl", "--store", "sqlite:///new.db")
    place = world.shell.place
    assert place.joinpath("again.jsonl").read_bytes() == place.joinpath("letters.jsonl").read_bytes()
    arrived = world.shell.ask(lambda service: service.find("m2"), "new.db")
    assert (arrived.message.body, arrived.message.headers) == (RAW, HEADERS)
    assert arrived == world.letters["raw"]


def test_the_same_through_a_pipe(world: World) -> None:
    lines = world.shell.process("export", "--tenant", "acme").stdout
    done = world.shell.process("--store", "sqlite:///new.db", "import", "-", input=lines)
    assert done.stderr == b"2 letters imported\n"
    assert world.shell.process("--store", "sqlite:///new.db", "export").stdout == lines


def test_importing_twice_changes_nothing(world: World) -> None:
    world.shell("export", "letters.jsonl")
    assert world.shell.json("import", "letters.jsonl") == {"imported": 6}
    assert world.count() == 6


def test_many_letters(shell: Shell) -> None:
    shell.keep([letter(number) for number in range(1200)])
    assert shell("export", "all.jsonl").stderr == "1,200 letters exported\n"
    assert shell("import", "all.jsonl", "--store", "sqlite:///new.db").stderr == "1,200 letters imported\n"
    assert shell.json("stats", "--store", "sqlite:///new.db")["total"] == 1200


@on_a_store
def test_what_was_on_its_way_waits_again_where_it_arrives(world: World) -> None:
    world.shell("retry", "m1")
    world.shell("export", "letters.jsonl")
    world.shell("import", "letters.jsonl", "--store", "sqlite:///new.db")
    assert world.shell.ask(lambda service: service.find("m1"), "new.db").state is State.PENDING
    assert world.shell.state_of("m1") is State.REPLAYING


def test_an_export_is_for_its_owner_only_and_replaces_nothing(world: World) -> None:
    world.shell("export", "letters.jsonl")
    file = world.shell.place / "letters.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("precious")
    assert "--force" in world.shell("export", "letters.jsonl", code=2).stderr
    assert file.read_text() == "precious"
    world.shell("export", "letters.jsonl", "--force")
    assert len(file.read_text().splitlines()) == 6


def test_an_export_that_fails_leaves_no_file(world: World) -> None:
    world.shell("export", "letters.jsonl", "--source", "oders", code=2)
    assert [one.name for one in world.shell.place.glob("letters*")] == []


def test_exporting_nothing_is_exit_code_1(world: World) -> None:
    assert world.shell("export", "--tenant", "nobody", code=1).stdout == ""


def test_a_line_that_is_no_letter_is_named(world: World, place: Path) -> None:
    good = world.shell("export", "--tenant", "acme").stdout
    place.joinpath("bad.jsonl").write_text(good + '{"letter": 7}\n')
    assert "line 3 of bad.jsonl is not a letter" in world.shell("import", "bad.jsonl", code=2).stderr


@pytest.mark.parametrize(("text", "code"), [("", 1), ("\n\n", 1), ("no json\n", 2)])
def test_a_file_without_letters(shell: Shell, place: Path, text: str, code: int) -> None:
    place.joinpath("odd.jsonl").write_text(text)
    shell("import", "odd.jsonl", code=code)


def test_files_that_cannot_be_opened_are_one_line(world: World) -> None:
    assert "nowhere.jsonl: No such file" in world.shell("import", "nowhere.jsonl", code=2).stderr
    assert "No such file" in world.shell("export", "no/such/folder.jsonl", code=2).stderr


def test_each_line_is_one_json_document(world: World) -> None:
    lines = world.shell("export").stdout.splitlines()
    assert {json.loads(line)["format"] for line in lines} == {"redrive.letter/1"}
