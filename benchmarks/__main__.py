"""`python -m benchmarks [ONLY …]`: one JSON line for each cell on stdout, progress on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

import msgspec

from benchmarks import families
from benchmarks.harness import Cell, Scale, say
from benchmarks.peers import PeerMissing


def found() -> list[Cell]:
    """Every cell of every family."""
    modules = [import_module(f"{families.__name__}.{one.name}") for one in iter_modules(families.__path__)]
    return [cell for module in modules for cell in module.CELLS]


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Those of the named families or cells; a name that is neither is an error."""
    for name in only:
        if not any(_names(name, cell) for cell in cells):
            raise SystemExit(f"there is no family or cell {name!r}: there is {', '.join(cell.name for cell in cells)}")
    return [cell for cell in cells if not only or any(_names(name, cell) for name in only)]


def _names(name: str, cell: Cell) -> bool:
    return cell.name == name or cell.name.startswith(f"{name.rstrip('/')}/")


def run(cells: Sequence[Cell], scale: Scale) -> tuple[bool, list[str]]:
    """Print each as it comes; whether every target was met, and what was not measured because a peer is missing."""
    met, missing = True, []
    for cell in cells:
        say(f"{cell.name}")
        try:
            result = cell.run(scale)
        except PeerMissing as why:
            missing.append(f"{cell.name} was not measured: {why}")
            continue
        met = met and result.met is not False
        print(msgspec.json.encode(result).decode(), flush=True)
    return met, missing


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("only", nargs="*", help="families (letters) or cells (letters/record); all, if none is named")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that the cells work, measures nothing")
    parser.add_argument("--rounds", type=int, help="how often each contender is measured; the median counts")
    parser.add_argument("--list", action="store_true", help="name the cells, and end")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target was missed")
    options = parser.parse_args(arguments)
    cells = chosen(found(), options.only)
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    rounds = options.rounds or (1 if options.quick else 5)
    met, missing = run(cells, Scale(quick=options.quick, rounds=rounds))
    if missing:
        say("\n".join(missing))
        return 2
    return 1 if options.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
