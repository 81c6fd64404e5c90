"""The extras of this package, read from its own metadata: what is not installed, and how to install it.

The metadata also says where the package was installed from. Whoever took it from a clone or a wheel is told to take the
extra from there, too: an index of packages may not have it, or have somebody else's of that name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

_PACKAGE = "redrive"
_EVERYTHING = "all"
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^\]]*)\])?[^;]*(?:;(?P<marker>.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w.-]+)['"]""")


def missing_extras() -> list[str]:
    """The extras of which something is not installed, but for the one that means all of them."""
    return [extra for extra in requirements(_PACKAGE) if extra != _EVERYTHING and not _has_all(_PACKAGE, extra)]


def install(*extras: str) -> str:
    """The command that installs these extras from where this package came from."""
    wanted = f"[{','.join(extras)}]"
    origin = _origin()
    url = str(origin.get("url", ""))
    if "dir_info" in origin:
        option = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {option}'{_path(url)}{wanted}'"
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return f"pip install '{_PACKAGE}{wanted} @ {vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', 'HEAD')}'"
    return f"pip install '{_PACKAGE}{wanted}{f' @ {url}' if url else ''}'"


def _path(url: str) -> Path:
    return Path(url2pathname(urlsplit(url).path))


def _origin() -> dict[str, Any]:
    """Where it was installed from, as pip noted it (direct_url.json); empty if it was an index of packages."""
    try:
        text = metadata.distribution(_PACKAGE).read_text("direct_url.json")
        found = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@cache
def requirements(package: str) -> dict[str, tuple[str, ...]]:
    """The requirements of each extra of a package, in the order of its metadata."""
    found: dict[str, list[str]] = {}
    try:
        lines = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return {}
    for line in lines:
        for extra in _EXTRA.findall(line):
            found.setdefault(extra, []).append(line)
    return {extra: tuple(lines) for extra, lines in found.items()}


def _has_all(package: str, extra: str) -> bool:
    return all(
        _is_installed(name) and all(_has_all(name, e) for e in extras) for name, extras in _wants(package, extra)
    )


def _wants(package: str, extra: str) -> Iterator[tuple[str, list[str]]]:
    """The packages that an extra wants, each with the extras that it wants of them."""
    for line in requirements(package).get(extra, ()):
        found = _REQUIREMENT.match(line)
        if found is not None:
            yield found["name"], [part.strip() for part in (found["extras"] or "").split(",") if part.strip()]


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
