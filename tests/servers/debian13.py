"""A tree of Debian 13 in a directory, for a server that Debian 12 has in an older version only.

The programs of the tree run on this kernel and this network, with `/` moved to the tree: no container, and no daemon.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from tests.servers.cache import Artefact, run_step
from tests.servers.errors import InstallError
from tests.servers.tools import DEBOOTSTRAP

MIRROR = "http://deb.debian.org/debian"
NOT_NEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")
# The mounts are in a namespace of the process, and end with it; its id stays the server's own.
ENTER = (
    'mount --make-rprivate / && mount -t proc proc "$0/proc" && mkdir -p "$0$1" && mount --bind "$1" "$0$1" '
    '&& tree=$0 && shift && exec chroot "$tree" "$@"'
)


def tree(package: str, version: str, proof: str) -> Artefact:
    """The package with all it needs. `proof` is a path in it that only this version has."""

    def build(target: Path, _: Path) -> None:
        name = f"{package}-debian13"
        run_step(name, ("debootstrap", "--variant=minbase", f"--include={package}", "trixie", target, MIRROR))
        if not (target / proof).exists():
            raise InstallError(f"{name}: Debian 13 has another version than {version} now; raise it in tests/servers")
        for path in NOT_NEEDED:
            run_step(name, ("rm", "-rf", target / path))
        _keep_links_inside(target)

    return Artefact(f"{package}-debian13", version, build, inputs=lambda: proof, tools=(DEBOOTSTRAP,))


def inside(root: Path, directory: Path, command: Sequence[str | Path]) -> Sequence[str | Path]:
    """The command, run in the tree, which sees the directory under its own path."""
    return ["unshare", "--mount", "sh", "-c", ENTER, root, directory, *command]


def _keep_links_inside(root: Path) -> None:
    """A link to /etc/… means that of the tree, also for whoever looks from outside and seals it."""
    for link in (path for path in root.rglob("*") if path.is_symlink()):
        target = os.readlink(link)
        if target.startswith("/"):
            link.unlink()
            link.symlink_to(os.path.relpath(root / target.lstrip("/"), link.parent))
