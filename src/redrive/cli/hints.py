"""Commands that are offered to a person work where they are read: on the same store, with the same configuration."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import click

_NAME = "redrive"
_COMMAND = re.compile(r"(?<=`)redrive (?=[a-z])")


def where() -> list[str]:
    """The options --config, --store and --server as this call was given them."""
    context = click.get_current_context(silent=True)
    said = None if context is None else context.obj
    config, store = getattr(said, "config", None), getattr(said, "store", None)
    server, ca_file = getattr(said, "server", None), getattr(said, "ca_file", None)
    named = {"--config": config, "--store": store, "--server": server, "--ca-file": ca_file}
    return [word for name, value in named.items() if value for word in (name, str(value))]


def program() -> str:
    """How this program is called from here: as it was, if the name alone would find another one, or none."""
    called = sys.argv[0]
    if Path(called).name != _NAME:
        return _NAME
    found = shutil.which(_NAME)
    return _NAME if found is not None and Path(found).resolve() == Path(called).resolve() else shlex.quote(called)


def program_from_anywhere() -> str:
    """The same for another directory and another terminal, which knows no environment of Python's."""
    beside = Path(sys.executable).parent / _NAME
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -m {_NAME}"


def placed(text: str) -> str:
    """The text with those options in each command that it has between backticks."""
    words = " ".join([program(), *map(shlex.quote, where())])
    return text if words == _NAME else _COMMAND.sub(lambda _: f"{words} ", text)


def runnable(text: str) -> str:
    """The same for a text that may be nothing but a command."""
    return placed(f"`{text}`")[1:-1] if text.startswith("redrive ") else placed(text)
