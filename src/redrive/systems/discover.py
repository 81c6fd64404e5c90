"""Which systems are installed. One that cannot be loaded is left out and named; it takes nothing else down."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from redrive.systems.base import System, resolved
from redrive.systems.points import entry_points

if TYPE_CHECKING:
    from msgspec import Struct

GROUP = "redrive.systems"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_refused: dict[str, str] = {}  # the name of its entry point -> why it cannot be used


@cache
def systems() -> dict[str, System]:
    """Every system by its name, in the order of their names."""
    found: dict[str, System] = {}
    for name, target in entry_points(GROUP):
        try:
            system = _checked(name, resolved(target), found)
        except Exception as error:  # whatever a stranger's module raises
            refuse(name, f"{target}: {_said(error)}")
        else:
            found[system.name] = system
    return found


@cache
def sections() -> dict[str, type[Struct]]:
    """The settings of each system that has some, by the name of their section."""
    found: dict[str, type[Struct]] = {}
    for name, system in systems().items():
        if system.settings:
            try:
                found[name] = resolved(system.settings)
            except Exception as error:
                refuse(name, f"its settings, {system.settings}: {_said(error)}")
    return found


def refuse(name: str, why: str) -> None:
    """Note that a system, or a part of it, is left out."""
    _refused[name] = why


def refused() -> list[str]:
    """A line for each system that is left out: its name, why, and what to do."""
    systems()
    return [
        f"the system {name!r} cannot be used ({why}): mend the package that brings it, or uninstall it"
        for name, why in _refused.items()
    ]


def _checked(name: str, system: object, found: dict[str, System]) -> System:
    if not isinstance(system, System):
        raise TypeError(f"it is a {type(system).__name__}, not a redrive.systems.base.System")
    if system.name != name:
        raise ValueError(f"its entry point is called {name!r}, and its descriptor {system.name!r}")
    if not _NAME.fullmatch(name):
        raise ValueError("its name has to be of a-z, 0-9 and _")
    if name in found:
        raise ValueError("another package has a system of that name")
    return system


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
