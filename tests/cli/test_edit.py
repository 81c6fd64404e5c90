"""`redrive edit`, `repair` and `unarchive`, as somebody at a terminal sees them."""

from __future__ import annotations

import pytest

from redrive.forensics.query import Query
from redrive.model import Letter, State
from tests.cli.world import RAW, Shell, letter

BODY = b'{"n":1,"password":"hunter2"}'


@pytest.fixture
def kept(shell: Shell) -> Letter:
    made = letter(1, body=BODY)
    shell.keep([made])
    return made


def body_of(shell: Shell, id: str = "m1") -> bytes:
    return shell.ask(lambda service: service.find(id)).message.body


def test_an_editor_gets_the_real_body_and_what_is_saved_is_kept(
    shell: Shell, kept: Letter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "sed -i -e 's/hunter2/better/'")
    monkeypatch.delenv("VISUAL", raising=False)
    done = shell("edit", "m1", input="y\n")
    assert '+  "password": "better"' in done.stderr
    assert "has version 1" in done.stderr
    assert body_of(shell) == BODY.replace(b"hunter2", b"better")
    shown = shell("show", "m1").stdout
    assert "Version 1" in shown
    assert "better" not in shown, "what is shown is masked"


def test_who_says_no_changes_nothing(shell: Shell, kept: Letter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i -e 's/hunter2/better/'")
    shell("edit", "m1", input="n\n", code=1)
    monkeypatch.setenv("EDITOR", "true")
    assert "nothing was changed" in shell("edit", "m1", code=1).stderr
    assert body_of(shell) == BODY


def test_a_file_and_headers_for_scripts_and_undo(shell: Shell, kept: Letter) -> None:
    (shell.place / "new.bin").write_bytes(RAW)
    assert shell.json("edit", "m1", "--body", "new.bin", "--header", "a=1", "--yes") == {"id": kept.id, "version": 1}
    assert body_of(shell) == RAW
    refused = shell("edit", "m1", code=2).stderr
    assert "binary" in refused
    assert "--raw-body FILE" in refused
    assert shell.json("edit", "m1", "--undo") == {"id": kept.id, "version": 2}
    assert shell.ask(lambda service: service.find("m1")).message == kept.message
    assert "nothing left to undo" in shell("edit", "m1", "--undo", code=2).stderr
    assert "NAME=VALUE" in shell("edit", "m1", "--header", "x", "--yes", code=2).stderr
    assert "neither --body" in shell("edit", "m1", "--undo", "--header", "a=1", code=2).stderr


def test_a_letter_on_its_way_is_not_edited(shell: Shell) -> None:
    shell.keep([letter(1, state=State.REPLAYING)])
    (shell.place / "new").write_bytes(b"{}")
    assert "is replaying: its message is on its way" in shell("edit", "m1", "--body", "new", "--yes", code=2).stderr


def test_a_repair_is_looked_at_applied_shown_and_undone(shell: Shell) -> None:
    shell.keep([letter(number, body=b'{"n": %d}' % number) for number in range(4)])
    (shell.place / "fix.py").write_text("def repair(message):\n    return {'n': 12 // message.json['n']}\n")
    words = ("repair", "--source", "orders", "fix.py")
    dry = shell(*words, "--dry-run").stdout
    assert "4 letters: 3 would change, 0 stay as they are, 1 failed" in dry
    assert "fix.py:2: ZeroDivisionError" in dry
    assert dry.count("--- version 0") == 3
    assert "nothing was done" in shell(*words, input="n\n", code=1).stderr
    assert body_of(shell, "m2") == b'{"n": 2}'
    done = shell.json(*words, "--yes")
    assert (done["changed"], done["state"]) == (3, "applied")
    assert body_of(shell, "m2") == b'{"n": 6}'
    assert len(shell.json("repair", "--show", done["id"])["letters"]) == 3
    assert [found["id"] for found in shell.json("repair", "--list")] == [done["id"]]
    assert shell.json("repair", "--undo", done["id"], "--yes") == {"restored": 3, "skipped": {}}
    assert body_of(shell, "m2") == b'{"n": 2}'


def test_what_a_repair_would_change_is_shown_masked(shell: Shell, kept: Letter) -> None:
    (shell.place / "fix.py").write_text("def repair(message):\n    return {**message.json, 'n': 2}\n")
    shown = shell("repair", "--source", "orders", "fix.py", "--dry-run")
    assert '+  "n": 2' in shown.stdout + shown.stderr
    assert "hunter2" not in shown.stdout + shown.stderr


def test_a_repair_wants_a_script_letters_and_a_good_one(shell: Shell, kept: Letter) -> None:
    assert "name the script" in shell("repair", "--source", "orders", code=2).stderr
    assert "there is no file" in shell("repair", "--source", "orders", "no.py", code=2).stderr
    assert "which letters?" in shell("repair", "fix.py", code=2).stderr
    (shell.place / "fix.py").write_text("x = 1\n")
    assert "has no function `repair(message)`" in shell("repair", "--all", "fix.py", code=2).stderr
    assert "there is no repair" in shell("repair", "--undo", "zzz", "--yes", code=2).stderr


def test_archived_letters_are_taken_back(shell: Shell) -> None:
    shell.keep([letter(1), letter(2, state=State.EXHAUSTED), letter(3)])
    shell("archive", "m1", "m2")
    assert shell.json("unarchive", "--source", "orders", "--yes") == {"unarchived": 2}
    assert (shell.state_of("m1"), shell.state_of("m2")) == (State.PENDING, State.EXHAUSTED)
    assert "which letters?" in shell("unarchive", "--yes", code=2).stderr
    assert "no archived letter matches" in shell("unarchive", "--all", "--yes", code=1).stderr


def test_everything_can_be_purged_if_it_is_said(shell: Shell, kept: Letter) -> None:
    assert shell.json("purge", "--all", "--yes") == {"purged": 1, "kept": 0}
    assert shell.ask(lambda service: service.count(Query())) == 0
