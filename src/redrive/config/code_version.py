"""Which version the user's code is: that of the distribution a module belongs to, or what git calls its directory.

Found by reading a few files, once for each file. No package metadata is parsed: the name of a `.dist-info` directory
has the version in it, and its RECORD says which files are its own. So a neighbour whose metadata is broken says nothing
wrong of us, and it does not matter which libraries about metadata somebody else in this process has imported.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_DIST_INFO = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*)\.dist-info")
_QUOTED_PATH = re.compile(r"""['"]((?:/|[A-Za-z]:[\\/])[^'"\n]+)['"]""")
_INSTALLED = {"site-packages", "dist-packages"}
_PATIENCE = 2.0  # seconds that git may take


def version_of(module: str) -> str:
    """The version of the code that a module is part of; empty if nothing says so. Never raises."""
    try:
        file = getattr(sys.modules.get(module), "__file__", None)
        return "" if file is None else version_of_file(str(Path(file).resolve()))
    except Exception:  # it is a convenience: what is strange about an installation must not stop a worker
        return ""


@lru_cache(maxsize=256)
def version_of_file(file: str) -> str:
    """The same of a file."""
    path = Path(file)
    found = _installed(path)
    if not found and not _INSTALLED.intersection(path.parts):
        found = described_by_git(path.parent)
    return found


def _installed(path: Path) -> str:
    """The version of the distribution that has that file, in its own place or in that of an editable installation."""
    for root in _roots():
        inside = path.relative_to(root).as_posix() if path.is_relative_to(root) else None
        for found, version in _distributions(root):
            if inside is not None and _records(found, inside):
                return version
            if any(path.is_relative_to(place) for place in _editable_places(found)):
                return version
    return ""


def _roots() -> list[Path]:
    """The directories that modules are imported from."""
    return [Path(entry).resolve() for entry in dict.fromkeys(sys.path) if entry and Path(entry).is_dir()]


def _distributions(root: Path) -> Iterator[tuple[Path, str]]:
    for name in sorted(os.listdir(root)):
        parts = _DIST_INFO.fullmatch(name)
        if parts is not None:
            yield root / name, parts["version"]


def _records(found: Path, inside: str) -> bool:
    return any(line.startswith((f"{inside},", f'"{inside}",')) for line in _lines(found / "RECORD"))


def _editable_places(found: Path) -> Iterator[Path]:
    """The directories and files that an editable installation points to: its .pth, or the finder that this imports."""
    for line in _lines(found / "RECORD"):
        name = line.partition(",")[0]
        if "/" in name or not name.endswith((".pth", "_finder.py")):
            continue
        for text in _lines(found.parent / name):
            places = [text.strip()] if name.endswith(".pth") else _QUOTED_PATH.findall(text)
            yield from (Path(place).resolve() for place in places if place and Path(place).is_absolute())


def _lines(file: Path) -> list[str]:
    """The lines of a file; none of one that is not there, or is no text."""
    try:
        return file.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []


@lru_cache(maxsize=256)
def described_by_git(directory: Path) -> str:
    """`git describe` of that directory: `v1.4.2`, `v1.4.2-3-g1a2b3c4`, or `g1a2b3c4` where there is no tag."""
    if not any((parent / ".git").exists() for parent in (directory, *directory.parents)):
        return ""
    tagged = _git(directory, "describe", "--tags")
    if tagged:
        return tagged
    commit = _git(directory, "rev-parse", "--short", "HEAD")
    return f"g{commit}" if commit else ""  # as git itself marks a commit: a hash of digits is no number of a version


def _git(directory: Path, *words: str) -> str:
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - our own words, and a directory that a module was imported from
            ["git", "-C", str(directory), *words],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            env={**os.environ, **quiet},
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
