"""A newcomer understands the help, and does not wait for it."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest

from redrive import __version__
from redrive.cli import main
from redrive.cli.lazy import Commands
from tests.cli.world import Shell

assert isinstance(main, Commands)
TABLE = main.table()
COMMANDS = [name for lines in TABLE.values() for name in lines]


def test_the_help_names_every_command_in_its_section(shell: Shell) -> None:
    text = shell("--help").stdout
    width = max(len(name) for lines in TABLE.values() for name in lines)
    for section, lines in TABLE.items():
        assert f"\n{section}:\n" in text
        for name, (_, line) in lines.items():
            assert re.search(rf"^  {name.ljust(width)} +{re.escape(line[:50])}", text, re.MULTILINE)
    assert "Exit codes:" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_in_the_table_is_there_and_has_its_own_help(shell: Shell, name: str) -> None:
    text = shell(name, "--help").stdout
    assert text.startswith(f"Usage: redrive {name}")
    assert len(text.splitlines()) > 5


def test_the_help_imports_nothing_that_it_does_not_need() -> None:
    heavy = ["litestar", "uvicorn", "structlog", "sqlite3", "asyncio", "rich.console", "msgspec", "redrive.app"]
    code = (
        "import sys; from redrive.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"print('LOADED', [name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_the_version(shell: Shell) -> None:
    assert shell("--version").stdout == f"redrive {__version__}\n"


def test_every_public_name_is_still_there() -> None:
    import redrive

    assert all(getattr(redrive, name) is not None for name in redrive.__all__)
    assert set(redrive.__all__) <= set(dir(redrive))
    with pytest.raises(AttributeError, match="no attribute 'Redrvie'"):
        redrive.Redrvie  # noqa: B018


def test_an_unknown_command_names_the_nearest(shell: Shell) -> None:
    assert "did you mean 'letters'?" in shell("leters", code=2).stderr


def test_an_unknown_option_is_wrong_usage(shell: Shell) -> None:
    assert "No such option" in shell("letters", "--sorce", "x", code=2).stderr


def test_global_options_stand_before_or_after_the_command(shell: Shell) -> None:
    shell("--store", "sqlite:///a.db", "send", "orders", "x")
    shell("send", "orders", "x", "--store", "sqlite:///a.db")
    assert shell.queued("a.db") == {"orders": 2}
    assert not (shell.place / "redrive.db").exists()


def test_the_group_is_a_click_group_as_any_other() -> None:
    context = click.Context(main)
    assert main.list_commands(context) == COMMANDS
    assert main.get_command(context, "nothing") is None
