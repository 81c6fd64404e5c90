"""A directory with nothing in it, the command line in this process, and the same as a real process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.served import served
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a module that says `BOTH_HOMES = True` run twice: on a store, and against a server that has it."""
    only = getattr(metafunc.function, "on_a_store", False)
    if "home" in metafunc.fixturenames and getattr(metafunc.module, "BOTH_HOMES", False) and not only:
        metafunc.parametrize("home", ["store", "server"], indirect=True)


@pytest.fixture
def home(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "store"))


@pytest.fixture
def world(shell: Shell, template: World, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Six letters in redrive.db: three causes, three sources, every state but those on their way.

    In the home of a server the database is not where commands are run: they reach it through the server, or not at all.
    """
    if home == "server":
        shell.kept = tmp_path_factory.mktemp("kept")
    file = shutil.copy(template.shell.place / "redrive.db", shell.kept or shell.place)
    world = World(shell, template.letters)
    if home == "store":
        yield world
        return
    with served(Path(file)) as server:
        os.environ |= {"REDRIVE_SERVER": server.url, "REDRIVE_TOKEN": server.token(unmask=True)}
        yield world
