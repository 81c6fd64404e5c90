"""The one directory, outside the tree, where fetched and built servers live."""

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.errors import InstallError
from tests.servers.manifest import Manifest

LOCKS = Path(__file__).parent / "locks"


def home() -> Path:
    """Where everything is kept: REDRIVE_SERVERS_HOME, or /var/tmp/redrive-servers."""
    return Path(os.environ.get("REDRIVE_SERVERS_HOME", "/var/tmp/redrive-servers")).absolute()


def say(server: str, step: str) -> None:
    """One line in the log of whoever installs."""
    print(f"{server}: {step}", flush=True)


@dataclass(frozen=True)
class Artefact:
    """A directory of the cache that is whole or absent: built aside, sealed, then renamed into place.

    `build` fills its first argument and may leave anything in the second, which is thrown away.
    A change of `inputs` makes what was built before stale.
    """

    name: str
    version: str
    build: Callable[[Path, Path], None]
    inputs: str = ""

    @property
    def path(self) -> Path:
        return home() / f"{self.name}-{self.version}"

    def is_intact(self) -> bool:
        """Whether the directory is there, made from these inputs, and no file of it changed since."""
        manifest = Manifest.read(self.path)
        return manifest is not None and manifest.inputs == self.inputs and manifest.matches(self.path)

    def install(self) -> None:
        """Builds it anew, whatever was there before. The caller holds `install_lock`."""
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
    Manifest.of(target, artefact.inputs).write(target)
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
) -> None:
    """Runs a command to its end; its output goes to a log that the error quotes when it fails."""
    log = home() / "log" / f"{server}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise InstallError(
            f"{server}: `{' '.join(map(str, command[:3]))} …` failed:\n{tail}\n"
            f"Full log: {log}. Check that the package registries can be reached, then run make servers again."
        )


def require_tool(server: str, tool: str, advice: str) -> str:
    """The path of a command that must be on PATH; the error says how to get it."""
    path = shutil.which(tool)
    if path is None:
        raise InstallError(f"{server}: needs `{tool}` on PATH; {advice}, then run make servers again")
    return path
