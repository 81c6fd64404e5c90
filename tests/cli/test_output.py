"""What is written can be read, copied and piped, and cannot drive the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive.cli.output import age, line, plain
from redrive.errors import StoreUnavailable
from redrive.model import State
from redrive.service import Service
from tests.cli.world import SOON, Shell, World, letter

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def _on_a_terminal(place: Path, *words: str, columns: int = 80, **environ: str) -> str:
    """What a person sees there."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", *words],
        cwd=place,
        env=env | {"TERM": "xterm-256color"} | environ,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    seen = b""
    while part := _read(leader):
        seen += part
    os.close(leader)
    process.wait(timeout=SOON)
    return seen.decode()


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


@pytest.mark.parametrize("command", ["letters", "groups", "stats", "config", "doctor", "show m1", "replays"])
def test_eighty_columns_are_enough(world: World, command: str) -> None:
    world.shell.keep([letter(11, text="a long story " * 40, source="a-source-with-a-long-name")])
    world.shell("retry", "m4")
    seen = COLOURS.sub("", _on_a_terminal(world.shell.place, *command.split()))
    assert max(len(one) for one in seen.splitlines()) <= 80
    if command == "letters":
        assert all(one.id in seen for one in world.letters.values())


@pytest.mark.parametrize("command", ["groups", "show m1"])
def test_a_command_to_copy_is_in_one_piece_however_long(world: World, command: str) -> None:
    place, store = world.shell.place, "sqlite:///./" + "./" * 30 + "redrive.db"
    seen = COLOURS.sub("", _on_a_terminal(place, "--store", store, *command.split()))
    assert re.search(rf"redrive --store {re.escape(store)} letters --group group\w+\r?$", seen, re.MULTILINE)


def test_a_long_source_costs_no_column_its_name(world: World) -> None:
    world.shell.keep([letter(11, source="pipestream.3f2504e0-4f89-41d3-9a0c-0305e82c3301")])
    seen = COLOURS.sub("", _on_a_terminal(world.shell.place, "stats"))
    heads = next(one for one in seen.splitlines() if one.startswith("SOURCE")).split()
    assert {"PENDING", "EXHAUSTED", "READY", "DELAYED", "LEASED"} <= set(heads)


def test_a_pipe_gets_whole_lines_without_colours(world: World) -> None:
    text = "a long story " * 40
    world.shell.keep([letter(11, text=text)])
    seen = world.shell.process("letters").stdout.decode()
    assert text.strip() in seen
    assert "\x1b" not in seen
    assert len(seen.splitlines()) == 2 + 7


def test_a_terminal_gets_colours_unless_it_does_not_want_them(world: World) -> None:
    place = world.shell.place
    assert "\x1b[33m" in _on_a_terminal(place, "letters")
    assert "\x1b[33m" not in _on_a_terminal(place, "letters", NO_COLOR="1")
    assert "\x1b[33m" not in _on_a_terminal(place, "--no-color", "letters")


def test_nothing_of_a_message_drives_the_terminal(world: World) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\r[bold red]not markup[/]"
    strange = {"error": "Evil\x1b[2J", "tenant": "t\x1b[2J", "source": "s\x1b[2J", "group": "groupddddddd"}
    world.shell.keep([letter(11, text=nasty, **strange)])  # type: ignore[arg-type]
    for command in (["letters"], ["groups"], ["show", "m11"], ["stats"], ["replay", "--all", "--dry-run"]):
        seen = _on_a_terminal(world.shell.place, *command, columns=300)
        assert "\x1b" not in COLOURS.sub("", seen)
        assert "\x07" not in seen
        assert command == ["stats"] or "[bold red]not markup[/]" in seen


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    shell.keep([letter(number, text="a long story " * 40) for number in range(1000)])
    for command in ("export", "letters --limit 1000"):
        process = shell.start(*command.split())
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read().decode()
        process.stderr.close()
        assert process.wait(SOON) == 141
        assert "Traceback" not in said
        assert "BrokenPipe" not in said


def test_an_error_is_one_line_and_a_traceback_only_for_debug(world: World) -> None:
    done = world.shell.process("show", "zzz", code=1).stderr.decode()
    assert done == "Error: no letter 'zzz': list them with `redrive letters`\n"
    assert "Traceback" in world.shell.process("--debug", "show", "zzz", code=1).stderr.decode()


def test_a_backend_that_does_not_answer_is_exit_code_3(shell: Shell, place: Path) -> None:
    place.joinpath("redrive.db").write_bytes(b"not a database at all, and longer than a header" * 50)
    done = shell("letters", code=3)
    assert "is unavailable" in done.stderr
    assert done.stdout == ""


def test_a_backend_that_goes_away_in_a_replay_says_how_to_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("redrive.db", "disk I/O error")

    monkeypatch.setattr(Service, "run_replay", away)
    said = world.shell("replay", "--source", "orders", "--yes", code=3).stderr
    assert "disk I/O error" in said
    assert "redrive replays resume" in said


def test_an_interrupt_is_exit_code_130(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Service, "stats", interrupted)
    assert world.shell("stats", code=130).stderr.strip() == "Error: interrupted"


def test_a_bug_is_not_hidden(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "stats", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.shell("stats")


def test_a_progress_bar_only_for_people(shell: Shell) -> None:
    """One letter a second: the bar is there when the second one is sent."""
    shell.keep([letter(number) for number in range(2)])
    words = ("replay", "--all", "--yes", "--rate", "1/s")
    assert "━" in _on_a_terminal(shell.place, *words)
    assert shell.state_of("m0") is State.REPLAYING


NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        (timedelta(seconds=5), "5s ago"),
        (timedelta(seconds=90), "1m ago"),
        (timedelta(minutes=90), "90m ago"),
        (timedelta(hours=5), "5h ago"),
        (timedelta(hours=47), "47h ago"),
        (timedelta(days=9), "9d ago"),
        (timedelta(minutes=-3), "in 3m"),
        (timedelta(milliseconds=-200), "0s ago"),
    ],
)
def test_ages(ago: timedelta, said: str) -> None:
    assert age(NOW - ago, NOW) == said


def test_lines() -> None:
    assert line("a\n\tb  c").plain == "a b c"
    assert line("abcdef", 4).plain == "abc…"
    assert plain("a\x1bb\r\nc\x9b") == "a\\x1bb\nc\\x9b"
    assert age(None) == ""
