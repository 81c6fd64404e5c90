"""The one directory, outside the tree, where fetched and built servers live."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.errors import WITHOUT_SERVERS, InstallError
from tests.servers.manifest import Manifest
from tests.servers.steps import STEPS
from tests.servers.tools import Tool

LOCKS = Path(__file__).parent / "locks"


def home() -> Path:
    """Where everything is kept: REDRIVE_SERVERS_HOME, or /var/tmp/redrive-servers."""
    return Path(os.environ.get("REDRIVE_SERVERS_HOME", "/var/tmp/redrive-servers")).absolute()


def say(server: str, step: str) -> None:
    """One line in the log of whoever installs, in one piece whoever else writes at the same time."""
    sys.stdout.write(f"{server}: {step}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Artefact:
    """A directory of the cache that is whole or absent: built aside, sealed, then renamed into place.

    `build` fills its first argument and may leave anything in the second, which is thrown away. It calls `tools`,
    and wants the artefacts of `after` to be there. A change of `inputs` makes what was built before stale; they are
    asked for when they are needed, since an install may bring the Java that they tell of.
    """

    name: str
    version: str
    build: Callable[[Path, Path], None]
    inputs: Callable[[], str] = str
    tools: tuple[Tool, ...] = ()
    after: tuple[Artefact, ...] = ()

    @property
    def path(self) -> Path:
        return home() / f"{self.name}-{self.version}"

    def is_intact(self) -> bool:
        """Whether the directory is there, made from these inputs, and no file of it changed since."""
        manifest = Manifest.read(self.path)
        return manifest is not None and manifest.inputs == self.inputs() and manifest.matches(self.path)

    def install(self) -> None:
        """Builds it anew, whatever was there before. The caller holds `install_lock`."""
        for tool in self.tools:
            tool.require(self.name)
        say(self.name, f"making {self.path.name}")
        started = time.monotonic()
        scratch = home() / "tmp" / f"{self.name}-{os.getpid()}"
        try:
            target = _fresh(scratch / "target")
            self.build(target, _fresh(scratch / "work"))
            _publish(target, self)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        say(self.name, f"done in {time.monotonic() - started:.0f} s")


def _fresh(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def _publish(target: Path, artefact: Artefact) -> None:
    """Seals the target and puts it where the artefact belongs; the old one goes with the scratch."""
    subprocess.run(["chmod", "-R", "a+rX", target], check=True)  # a server may run as another user
    Manifest.of(target, artefact.inputs()).write(target)
    if artefact.path.exists():
        artefact.path.rename(target.parent / "replaced")
    target.rename(artefact.path)


@contextmanager
def install_lock() -> Iterator[None]:
    """One install at a time; whatever an interrupted one left half made is removed."""
    home().mkdir(parents=True, exist_ok=True)
    with (home() / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("servers", "another install is running, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(home() / "tmp", ignore_errors=True)
        yield


def run_step(
    server: str,
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    may_be_killed: bool = True,
) -> None:
    """Runs a command to its end; its output goes to a log that the error quotes when it fails."""
    log = home() / "log" / f"{server}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        code = STEPS.run(command, output, cwd=cwd, env=env, may_be_killed=may_be_killed)
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise InstallError(
            f"{server}: `{' '.join(map(str, command[:3]))} …` failed:\n{tail}\nFull log: {log}. "
            f"Check that the package registries can be reached, then run make servers again, {WITHOUT_SERVERS}"
        )
