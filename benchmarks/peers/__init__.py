"""What we are measured against. A peer that is not installed is an error, never a silent gap."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType


class PeerMissing(SystemExit):
    """A benchmark without its peers has no ratio."""


def needed(module: str) -> ModuleType:
    """That module of a peer."""
    try:
        return import_module(module)
    except ImportError as error:
        raise PeerMissing(
            f"the benchmarks need {module.partition('.')[0]}, which is not installed: run `make bench`, or "
            f"pip install -r requirements-bench.txt ({error})"
        ) from error


def own_python(name: str) -> str:
    """The interpreter of a peer that has an environment of its own, since it quarrels with what we need."""
    python = Path(sys.prefix) / name / "bin" / "python"
    if not python.exists():
        raise PeerMissing(f"the benchmarks need {name} in an environment of its own, {python}: run `make bench`")
    return str(python)
