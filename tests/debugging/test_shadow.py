"""A shadow replay says what would become of letters, and nothing comes of it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from redrive.testing.handling import handle
from tests.cli.world import Shell
from tests.debugging.conftest import dead


def tried(shell: Shell, source: str, *words: str, code: int | None = None) -> Any:
    """The report of a shadow replay of that source's letters."""

    done = shell("replay", "--source", source, "--shadow", "--json", "--handler", *words, code=code)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def rows(file: Path) -> list[str]:
    """Everything that is in a database but the trail, which tells that letters were read as they are."""
    with sqlite3.connect(file) as connection:
        found = [row for row in connection.iterdump() if not row.startswith("INSERT INTO \"documents\" VALUES('trail'")]
    connection.close()
    return found


def test_it_says_how_many_would_succeed_and_how_the_others_fail(shell: Shell) -> None:
    bodies = {"good": b'{"id": 1, "price": "7"}', "bad": b'{"id": 2, "price": "x"}', "worse": b'{"id": 3'}
    shell.keep([dead("orders", body, id=name) for name, body in bodies.items()])
    before = rows(shell.place / "redrive.db")
    report = tried(shell, "orders", "shop:charge", code=1)
    assert (report["selected"], report["tried"], report["succeeded"], report["failed"]) == (3, 3, 1, 2)
    assert {(group["error_type"], group["same"]) for group in report["groups"]} == {
        ("ValueError", False),
        ("msgspec.DecodeError", False),
    }
    assert rows(shell.place / "redrive.db") == before  # nothing was written, resolved or claimed
    assert not (shell.place / "queue.db").exists()  # nor was anything opened to send to


def test_what_fails_as_before_is_told_from_what_fails_elsewhere_now(shell: Shell) -> None:
    letter = dead("orders", b'{"id": 2, "price": "x"}', id="a")
    shell.keep([letter])
    [first] = tried(shell, "orders", "shop:charge")["groups"]
    assert first["same"] is False
    shell.keep([dead("orders", b'{"id": 2, "price": "x"}', id="b", group=first["group"])])
    groups = tried(shell, "orders", "shop:charge")["groups"]
    assert sorted((group["same"], group["count"]) for group in groups) == [(False, 1), (True, 1)]
    shown = shell("replay", "--source", "orders", "--shadow", "--handler", "shop:charge", code=1)
    assert "as before" in shown.stdout
    assert "elsewhere now" in shown.stdout
    assert "Nothing was sent, resolved or changed." in shown.stderr


def test_what_a_handler_does_to_its_process_is_of_its_letter_alone(shell: Shell) -> None:
    said = {"exit": "3", "die": "exit code 7", "kill": "process down", "segv": "SIGSEGV"}
    harmless = ["fine", "fork", "fork-return", "print", "read", "chdir", "fine"]
    bodies = [*harmless[:3], *said, *harmless[3:]]
    shell.keep([dead("wild", body.encode(), id=f"{n:02}-{body}") for n, body in enumerate(bodies)])
    report = tried(shell, "wild", "shop:wild")
    assert (report["tried"], report["succeeded"], report["failed"]) == (11, 7, 4)
    assert all(any(text in group["message"] for group in report["groups"]) for text in said.values())


def test_a_handler_that_hangs_ends_with_the_time_that_it_may_take(shell: Shell) -> None:
    shell.keep([dead("wild", b"hang", id="1"), dead("wild", b"fine", id="2")])
    text = (shell.place / "shop.py").read_text()
    (shell.place / "shop.py").write_text(
        text.replace('@app.handler("wild")', '@app.handler("wild", policy=Policy(timeout="300ms"))')
    )
    report = tried(shell, "wild", "shop:wild", "--time-limit", "2m")
    assert (report["succeeded"], report["failed"]) == (1, 1)
    assert "took longer than" in report["groups"][0]["message"]


def test_a_time_limit_ends_a_handler_that_holds_its_process(shell: Shell) -> None:
    shell.keep([dead("wild", b"hang", id="1"), dead("wild", b"fine", id="2")])
    report = tried(shell, "wild", "shop:wild", "--time-limit", "5s")
    assert report["tried"] <= 1
    assert report["stopped"] == "the time is over"


def test_no_more_letters_are_tried_than_asked_for(shell: Shell) -> None:
    shell.keep([dead("orders", b'{"id": 1, "price": "7"}', id=f"{n}") for n in range(5)])
    report = tried(shell, "orders", "shop:charge", "--limit", "2")
    assert (report["selected"], report["tried"]) == (5, 2)
    assert report["stopped"] == "only the first 2 were to be tried"


def test_what_a_handler_sends_reaches_no_transport_and_is_counted(shell: Shell) -> None:
    shell.keep([dead("sends", b'{"id": 1}', id="1")])
    report = tried(shell, "sends", "shop:sends", code=0)
    assert report["sent"] == {"orders": 1, "emails": 1}
    assert not (shell.place / "queue.db").exists()
    message = dead("sends", b'{"id": 1}', id="1").message
    assert [sent.source for sent in handle("shop:sends", message)] == ["orders", "emails"]
    assert not (shell.place / "queue.db").exists()


def test_effects_go_where_the_variables_say_and_dry_is_true(shell: Shell) -> None:
    shell.keep([dead("effects", b'{"id": 1}', id="1")])
    (shell.place / "shadow.env").write_text('# elsewhere\nexport EFFECTS="shadow.log"\n')
    report = tried(shell, "effects", "shop:effects", "--env-file", "shadow.env", code=0)
    assert report["succeeded"] == 1
    assert (shell.place / "shadow.log").read_text() == "dry=True id=1"
    assert not (shell.place / "real.log").exists()


def test_every_kind_of_handler_is_tried_in_one_app(shell: Shell) -> None:
    bodies = [b'{"id": 1, "price": "7"}', b'{"id": 2, "price": "x"}']
    sources = ["async", "objects", "batches"]
    shell.keep([dead(source, body, id=f"{n}") for source in sources for n, body in enumerate(bodies)])
    done = shell("replay", "--all", "--shadow", "--json", "--handler", "shop:app", code=1)
    report = json.loads(done.stdout)
    assert (report["succeeded"], report["failed"]) == (3, 3)


def test_secrets_in_errors_are_masked(shell: Shell) -> None:
    shell.keep([dead("orders", b'{"id": 2, "price": "password=hunter2"}', id="a")])
    assert "hunter2" not in str(tried(shell, "orders", "shop:charge"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--handler", "shop:refund"],
            "there is no handler 'refund'; was it removed or renamed? There is shop:Charger",
        ),
        (["--handler", "nowhere:charge"], "no module 'nowhere'"),
        (["--handler", "shop.py:charge"], "is no module"),
        ([], "name it, as --handler shop:charge"),
        (["--handler", "shop:charge", "--env-file", "bad.env"], "bad.env, line 2: write it as NAME=value"),
        (["--handler", "shop:charge", "--time-limit", "0s"], "longer than nothing"),
    ],
)
def test_what_cannot_be_tried_is_said(shell: Shell, words: list[str], said: str) -> None:
    shell.keep([dead("orders", b"{}", id="a")])
    (shell.place / "bad.env").write_text("A=1\nhunter2\n")
    done = shell("replay", "--source", "orders", "--shadow", *words, code=2)
    assert said in " ".join(done.stderr.split())
    assert "hunter2" not in done.stderr


def test_the_options_of_a_shadow_are_refused_without_it_and_no_letter_is_said(shell: Shell) -> None:
    shell.keep([dead("orders", b"{}", id="a")])
    assert "are for --shadow" in shell("replay", "--all", "--handler", "shop:charge", code=2).stderr
    words = ("replay", "--group", "nope", "--shadow", "--handler", "shop:charge")
    assert "no letter matches" in shell(*words, code=1).stderr
