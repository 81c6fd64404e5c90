"""The servers by hand: `python -m tests.servers install | status | run`."""

import argparse
import signal
import sys
from collections.abc import Sequence

from tests.servers.catalogue import CATALOGUE
from tests.servers.errors import ServersError
from tests.servers.install import install, status


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; an error is one message on stderr and exit code 1."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "install":
            install(options.names)
        elif options.command == "status":
            print(status())
        else:
            run(options.name)
    except ServersError as error:
        print(error, file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f"{error}; name a directory of yours in REDRIVE_SERVERS_HOME", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; what was made already is kept", file=sys.stderr)
        return 130
    return 0


def run(name: str) -> None:
    """Starts one server, prints where it is, and keeps it until Ctrl-C or SIGTERM."""
    start = CATALOGUE[name].start
    assert start is not None
    ending = {signal.SIGINT, signal.SIGTERM}
    with start() as server:
        signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        for purpose, address in server.addresses.items():
            print(f"{name} {purpose}: {address}", flush=True)
        signal.sigwait(ending)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install", help="fetch and build what is lacking")
    installing.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CATALOGUE)}; all if none")
    commands.add_parser("status", help="show what is installed")
    running = commands.add_parser("run", help="start one server in the foreground")
    running.add_argument("name", choices=[name for name, entry in CATALOGUE.items() if entry.start])
    return parser


if __name__ == "__main__":
    sys.exit(main())
