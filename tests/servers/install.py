"""Bringing servers onto this machine: only what is lacking, in a way that survives being interrupted."""

from collections.abc import Sequence

from tests.servers import debian
from tests.servers.cache import home, install_lock, say
from tests.servers.catalogue import CATALOGUE
from tests.servers.errors import InstallError


def install(names: Sequence[str] = ()) -> None:
    """Afterwards the named servers (all, if none is named) can be started. A second time does nothing."""
    if unknown := set(names) - set(CATALOGUE):
        raise InstallError(f"{', '.join(sorted(unknown))}: no such server; there are {', '.join(CATALOGUE)}")
    wanted = {name: CATALOGUE[name].needs for name in names or CATALOGUE}
    lacking = [name for name, needs in wanted.items() if needs.lacking()]
    if lacking:
        with install_lock():
            # One call of apt-get for all is faster than one for each.
            debian.install("debian", [package for name in lacking for package in wanted[name].packages])
            for name in lacking:
                wanted[name].install(name)
    say("servers", f"{', '.join(wanted)}: ready in {home()}")


def status() -> str:
    """A table of every server: its version, and whether it is ready or what it lacks."""
    return "\n".join(_row(name) for name in CATALOGUE)


def _row(name: str) -> str:
    entry = CATALOGUE[name]
    lacking = entry.needs.lacking()
    state = f"lacks {', '.join(lacking)}" if lacking else "ready"
    return f"{name:<14}{entry.version:<12}{state}"
