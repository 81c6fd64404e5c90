"""Bringing servers onto this machine: only what is lacking, in a way that survives being interrupted."""

from collections.abc import Sequence

from tests.servers import debian
from tests.servers.cache import Artefact, home, install_lock, say
from tests.servers.catalogue import CATALOGUE
from tests.servers.errors import InstallError
from tests.servers.needs import Needs
from tests.servers.side_by_side import Job, run_side_by_side

DEBIAN = "debian"


def install(names: Sequence[str] = ()) -> None:
    """Afterwards the named servers (all, if none is named) can be started. A second time does nothing."""
    if unknown := set(names) - set(CATALOGUE):
        raise InstallError(f"{', '.join(sorted(unknown))}: no such server; there are {', '.join(CATALOGUE)}")
    wanted = {name: CATALOGUE[name].needs for name in names or CATALOGUE}
    if any(needs.lacking() for needs in wanted.values()):
        with install_lock():
            run_side_by_side(jobs(list(wanted.values())))
    say("servers", f"{', '.join(wanted)}: ready in {home()}")


def jobs(wanted: Sequence[Needs]) -> list[Job]:
    """What is to be done: one call of apt-get for all, beside it whatever wants nothing that it brings."""
    packages = debian.missing(list(dict.fromkeys(name for needs in wanted for name in needs.packages_to_bring())))
    artefacts = {artefact.name: artefact for needs in wanted for artefact in needs.to_make()}
    apt = [Job(DEBIAN, lambda: debian.install(DEBIAN, packages))] if packages else []
    return apt + [_job(artefact) for artefact in artefacts.values()]


def _job(artefact: Artefact) -> Job:
    wants_debian = any(not tool.is_there for tool in artefact.tools)
    before = {other.name for other in artefact.after} | ({DEBIAN} if wants_debian else set())
    return Job(artefact.name, artefact.install, frozenset(before))


def status() -> str:
    """A table of every server: its version, and whether it is ready or what it lacks."""
    return "\n".join(_row(name) for name in CATALOGUE)


def _row(name: str) -> str:
    entry = CATALOGUE[name]
    lacking = entry.needs.lacking()
    state = f"lacks {', '.join(lacking)}" if lacking else "ready"
    return f"{name:<14}{entry.version:<12}{state}"
