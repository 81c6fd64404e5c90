"""What is offered to be typed works where it is read: on the same store, with the same program."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.world import SOON, Shell, World

STORE = "sqlite:///else where/there.db"


@pytest.fixture
def elsewhere(world: World, place: Path) -> World:
    place.joinpath("else where").mkdir()
    place.joinpath("redrive.db").rename(place / "else where" / "there.db")
    return world


def commands_in(text: str) -> list[list[str]]:
    """Every command that is offered: between backticks, after its name, or at the end of a line."""
    found = re.findall(r"`(redrive [^`]+)`", text) + re.findall(r"(?:  |: |→ )(redrive .*)$", text, re.MULTILINE)
    return [shlex.split(command)[1:] for command in found]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("groups",), 0),
        (("show", "m1"), 0),
        (("letters", "--limit", "2"), 0),
        (("show", "nobody"), 1),
        (("replays", "show", "nobody"), 1),
        (("replays",), 0),
        (("retry", "m1"), 0),
        (("doctor",), 0),
        (("token", "list"), 0),
    ],
)
def test_every_command_that_is_offered_is_on_the_store_that_was_given(
    elsewhere: World, words: tuple[str, ...], code: int
) -> None:
    done = elsewhere.shell("--store", STORE, *words, code=None)
    assert done.exit_code in (code, 1)
    offered = commands_in(done.stdout + done.stderr)
    assert offered, (done.stdout, done.stderr)
    assert [command for command in offered if STORE not in command] == []
    for command in offered:
        if command[-1] != "MODULE:APP" and "replay" not in command:
            assert elsewhere.shell(*command, "--help").exit_code == 0


def test_with_the_configuration_that_was_given(elsewhere: World, place: Path) -> None:
    place.joinpath("mine.toml").write_text(f'store = "{STORE}"\n')
    done = elsewhere.shell("groups", "--config", "mine.toml")
    assert {tuple(command[:2]) for command in commands_in(done.stdout)} == {("--config", "mine.toml")}
    for command in commands_in(done.stdout):
        if "letters" in command:
            elsewhere.shell(*command)


def test_the_doctor_names_the_app_that_it_was_given(elsewhere: World, place: Path) -> None:
    place.joinpath("shop.py").write_text(
        "from redrive import Redrive\napp = Redrive()\n@app.handler('orders')\ndef charge(order: dict) -> None: ...\n"
    )
    elsewhere.shell("--store", STORE, "send", "orders", "x")
    done = elsewhere.shell("--store", STORE, "doctor", "--app", "shop:app")
    assert ["--store", STORE, "run", "shop:app"] in commands_in(done.stdout)


def test_a_program_that_is_not_on_the_path_is_called_as_it_was(world: World, place: Path) -> None:
    place.joinpath("here").symlink_to(Path(sys.executable).parent)
    command = ["here/redrive", "show", "nobody"]
    environ = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True, timeout=SOON)
    assert "`here/redrive letters`" in done.stderr
    environ["PATH"] = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["redrive", *command[1:]], cwd=place, env=environ, capture_output=True, text=True, timeout=SOON
    )
    assert "`redrive letters`" in done.stderr


def test_what_the_demo_prints_can_be_typed_in_any_directory(shell: Shell, tmp_path: Path) -> None:
    demo = shell.start("demo", "--port", "0", "--dir", str(tmp_path / "de mo"))
    assert demo.stdout is not None
    lines = list[str]()
    while not any("Stop with Ctrl-C" in line for line in lines):
        line = demo.stdout.readline().decode()
        assert line, "it ended"
        lines.append(line)
    offered = [line.strip() for line in lines if "--store" in line]
    assert len(offered) == 4
    for command in offered:
        while "unknown source" in (done := _typed(command)).stderr:  # its first message is on its way
            assert demo.poll() is None
        assert done.returncode in (0, 1), done.stderr
        assert "rror" not in done.stderr or done.returncode == 1, done.stderr
    demo.terminate()
    demo.communicate(timeout=SOON)


def _typed(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shlex.split(command), *(["--dry-run"] if " replay " in command else [])],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=SOON,
    )
