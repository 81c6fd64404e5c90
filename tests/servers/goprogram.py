"""Servers that are built from their Go modules."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.servers import golang
from tests.servers.cache import Artefact, run_step
from tests.servers.errors import InstallError
from tests.servers.tools import CERTIFICATES


@dataclass(frozen=True)
class GoProgram:
    """Commands built from one pinned module. Its dependencies are checked by go's own checksum database."""

    server: str
    module: str
    version: str
    checksum: str
    commands: Mapping[str, str]
    dropped_replaces: tuple[str, ...] = ()

    def artefact(self) -> Artefact:
        """The directory of the cache with the commands."""
        return Artefact(
            self.server,
            self.version.removeprefix("v"),
            self.build,
            inputs=lambda: self.checksum,
            tools=(CERTIFICATES,),
            after=(golang.TOOLCHAIN,),
        )

    def build(self, target: Path, work: Path) -> None:
        """Leaves the stripped binaries in the target, and module and build caches nowhere."""
        go, env = golang.command(), golang.environment(work)
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
