"""The version of the user's code is found where it is written down, and nothing around it can break that."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.config.code_version import described_by_git, version_of, version_of_file
from redrive.config.settings import Settings


def forget() -> None:
    version_of_file.cache_clear()
    described_by_git.cache_clear()


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that modules are imported from, with a shop in it."""
    root = tmp_path / "site-packages"
    (root / "shop").mkdir(parents=True)
    (root / "shop" / "work.py").write_text("")
    monkeypatch.setattr("sys.path", [str(root)])
    return root


def installed(root: Path, name: str, version: str, *files: str) -> None:
    directory = root / f"{name}-{version}.dist-info"
    directory.mkdir()
    (directory / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))


def test_a_module_has_the_version_of_the_distribution_that_installed_it(site: Path) -> None:
    installed(site, "other", "9.9", "other/work.py")
    installed(site, "the_shop", "1.4.2", "shop/__init__.py", "shop/work.py")
    assert version_of_file(str(site / "shop" / "work.py")) == "1.4.2"


def test_a_neighbour_with_broken_metadata_does_not_matter(site: Path) -> None:
    (site / "broken-1.0.dist-info").mkdir()  # without a RECORD
    (site / "binary-1.0.dist-info").mkdir()
    (site / "binary-1.0.dist-info" / "RECORD").write_bytes(b"\xff\xfe\x00garbage")
    (site / "-1.dist-info").mkdir()
    (site / "file-1.0.dist-info").write_text("no directory")
    installed(site, "shop", "2.0rc1", "gone.py", "shop/work.py")
    assert version_of_file(str(site / "shop" / "work.py")) == "2.0rc1"


@pytest.mark.parametrize("way", ["pth", "finder"])
def test_an_editable_installation_points_to_the_code(site: Path, tmp_path: Path, way: str) -> None:
    source = tmp_path / "project" / "src"
    source.mkdir(parents=True)
    name = "__editable__.shop.pth" if way == "pth" else "__editable___shop_finder.py"
    (site / name).write_text(f"{source}\n" if way == "pth" else f"MAPPING = {{'shop': '{source}/shop'}}\n")
    installed(site, "shop", "3.1", name)
    assert version_of_file(str(source / "shop" / "work.py")) == "3.1"
    assert version_of_file(str(tmp_path / "elsewhere.py")) == ""


def git(directory: Path, *words: str) -> None:
    who = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True, env=os.environ | who)


def test_code_that_is_not_installed_has_the_version_that_git_gives_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    file = tmp_path / "work.py"
    file.write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    assert version_of_file(str(file)).startswith("g")
    git(tmp_path, "tag", "v1.4.2")
    forget()
    assert version_of_file(str(file)) == "v1.4.2"
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "second")
    forget()
    assert version_of_file(str(file)).startswith("v1.4.2-1-g")


def test_an_empty_repository_and_no_repository_say_nothing(tmp_path: Path) -> None:
    assert version_of_file(str(tmp_path / "work.py")) == ""
    git(tmp_path, "init", "-q")
    forget()
    assert version_of_file(str(tmp_path / "work.py")) == ""


def test_nothing_that_is_strange_about_a_module_raises() -> None:
    for name in ("no_such_module", "builtins", ""):
        assert version_of(name) == ""


def test_what_is_given_wins_over_the_setting_and_this_over_what_is_found() -> None:
    assert Redrive(version="2.0", settings=Settings(version="1.0")).version == "2.0"
    assert Redrive(settings=Settings(version="1.0")).version == "1.0"


def test_the_module_of_the_first_handler_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def found(module: str) -> str:
        asked.append(module)
        return "7.0"

    monkeypatch.setattr("redrive.app.version_of", found)
    app = Redrive(transport="memory://", store="memory://")
    assert app.version == ""  # there is no code yet
    app.handler("orders")(_handler)
    assert [app.version, app.version] == ["7.0", "7.0"]
    assert asked == [__name__]  # once


async def _handler(body: bytes) -> None: ...
