"""What we are measured against. A peer that is not installed is an error, never a silent gap."""

from __future__ import annotations

from importlib import import_module
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
