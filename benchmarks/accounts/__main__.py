"""`python -m benchmarks.accounts [BROKER …]`: one JSON line for each broker on stdout, a table on stderr.

Exit code 1 if anything was lost or left over.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.accounts.account import Account, account
from benchmarks.accounts.brokers import BROKERS, STRIKES
from benchmarks.harness import in_loop

_COLUMNS = (
    "broker",
    "processes",
    "messages",
    "kills",
    "server_kills",
    "lost",
    "letters",
    "doubled",
    "repeats",
    "repeats_per_kill",
    "most_repeats",
    "standstill",
    "longest_standstill",
    "seconds",
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.disable(logging.WARNING)
    accounts = []
    for broker in options.brokers or BROKERS:
        with tempfile.TemporaryDirectory(prefix="redrive-accounts-") as directory:
            found = _account(broker, Path(directory), options)
        print(msgspec.json.encode(found).decode(), flush=True)
        accounts.append(found)
    print(table(accounts), file=sys.stderr)
    return int(any(found.lost or found.left or found.doubled for found in accounts))


def table(accounts: Sequence[Account]) -> str:
    """As Markdown."""
    rows = [[str(getattr(found, name)) for name in _COLUMNS] for found in accounts]
    lines = [[name.replace("_", " ") for name in _COLUMNS], ["---"] * len(_COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _account(broker: str, directory: Path, options: argparse.Namespace) -> Account:
    print(broker, file=sys.stderr)
    with BROKERS[broker](directory) as url:
        return in_loop(
            account(
                broker,
                url,
                directory,
                messages=options.messages,
                kills=options.kills,
                batch=options.batch,
                seed=options.seed,
                processes=options.processes,
                strike=STRIKES.get(broker),
                exactly_once=broker.endswith("exactly-once"),
            )
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accounts", description=__doc__)
    parser.add_argument("brokers", nargs="*", choices=[*BROKERS, []], metavar="BROKER", help=", ".join(BROKERS))
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument(
        "--processes", type=int, default=0, help="kill processes of `redrive run --processes N`, not single workers"
    )
    parser.add_argument("--seed", type=int, default=14)
    return parser


if __name__ == "__main__":
    sys.exit(main())
