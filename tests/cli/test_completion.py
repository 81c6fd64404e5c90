"""Tab completes, in a real bash: commands, options, sources, groups, letters. It is silent whatever is wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.cli.completing import MOST
from tests.cli.world import SOON, Shell, World, letter

_BASH = """
eval "$(redrive completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_redrive_completion redrive "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(place: Path, *words: str, **environ: str) -> list[str]:
    """What bash offers after these words, the last of which is being typed; nothing may be written to the terminal."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", _BASH, "bash", "redrive", *words],
        cwd=place,
        env={**os.environ, "PATH": path, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SOON,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_commands_and_options(place: Path) -> None:
    assert completed(place, "pau") == ["pause"]
    assert completed(place, "tickets", "dlq") == ["dlq-consumer"]
    assert "--error-type" in completed(place, "letters", "--e")
    assert completed(place, "letters", "--state", "ex") == ["exhausted"]
    assert list(place.iterdir()) == []


def test_sources_groups_and_letters(world: World, place: Path) -> None:
    world.shell("send", "invoices", "{}")
    assert completed(place, "letters", "--source", "") == ["files", "invoices", "mails", "orders"]
    assert completed(place, "send", "inv") == ["invoices"]
    assert completed(place, "pause", "ord") == ["orders"]
    assert completed(place, "groups", "--group", "groupb") == ["groupbbbbbbb"]
    assert set(completed(place, "show", "")) == {letter.id for letter in world.letters.values()}
    wanted = world.id("mail")
    assert completed(place, "retry", world.id("new"), wanted[:6]) == [wanted]
    assert completed(place, "archive", "no-such") == []


def test_replays(world: World, place: Path) -> None:
    world.shell("retry", "m1")
    [replay] = world.shell.json("replays")["replays"]
    assert completed(place, "replays", "show", "") == [replay["replay"]["id"]]


def test_on_the_store_that_was_given(world: World, place: Path) -> None:
    place.joinpath("redrive.db").rename(place / "there.db")
    assert completed(place, "show", "") == []
    assert len(completed(place, "--store", "sqlite:///there.db", "show", "")) == 6
    assert len(completed(place, "show", "--store", "sqlite:///there.db", "")) == 6
    place.joinpath("mine.toml").write_text('store = "sqlite:///there.db"\n')
    assert len(completed(place, "--config", "mine.toml", "show", "")) == 6
    assert len(completed(place, "show", "", REDRIVE_CONFIG="mine.toml")) == 6


def test_it_is_bounded(shell: Shell, place: Path) -> None:
    shell.keep([letter(number) for number in range(MOST + 20)])
    assert len(completed(place, "show", "")) == MOST


@pytest.mark.parametrize("text", ["store = 7", "[transports]\ndefualt = 'x'", "no toml"])
def test_a_wrong_configuration_completes_nothing_and_says_nothing(place: Path, text: str) -> None:
    place.joinpath("redrive.toml").write_text(text)
    assert completed(place, "show", "") == []
    assert completed(place, "letters", "--source", "") == []
    assert completed(place, "pau") == ["pause"]


@pytest.mark.parametrize("scheme", ["redis", "mongodb", "opensearch"])
def test_a_store_that_is_away_or_says_nothing_completes_nothing(place: Path, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        for port in (1, silent.getsockname()[1]):
            assert completed(place, "--store", f"{scheme}://127.0.0.1:{port}", "show", "") == []


def test_every_shell_has_its_script(shell: Shell) -> None:
    for name in ("bash", "zsh", "fish"):
        assert "_REDRIVE_COMPLETE" in shell("completion", name).stdout
    assert "'bash', 'zsh', 'fish'" in shell("completion", "tcsh", code=2).stderr
