"""A directory with nothing in it, the command line in this process, and the same as a real process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.world import Shell, World


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory, and no setting of whoever runs the tests."""
    before, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    for name in [name for name in os.environ if name.startswith("REDRIVE_")]:
        del os.environ[name]
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def shell(place: Path) -> Iterator[Shell]:
    shell = Shell(place)
    yield shell
    shell.end()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.made(Shell(tmp_path_factory.mktemp("template")))


@pytest.fixture
def world(shell: Shell, template: World) -> World:
    """Six letters in redrive.db: three causes, three sources, every state but those on their way."""
    shutil.copy(template.shell.place / "redrive.db", shell.place)
    return World(shell, template.letters)
