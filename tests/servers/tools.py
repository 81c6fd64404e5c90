"""Commands that a server, or the build of one, calls; and the Debian package that brings each where it is absent."""

import os
import shutil
from dataclasses import dataclass

from tests.servers.errors import WITHOUT_SERVERS, InstallError


@dataclass(frozen=True)
class Tool:
    """A command on PATH, or a file by its path. What is there already is used as it is, wherever it came from."""

    name: str
    package: str

    def find(self) -> str | None:
        """Its path; None where it is not."""
        return (self.name if os.path.exists(self.name) else None) if "/" in self.name else shutil.which(self.name)

    @property
    def is_there(self) -> bool:
        return self.find() is not None

    def require(self, server: str) -> str:
        """Its path; the error says how to get it."""
        if (path := self.find()) is None:
            raise InstallError(
                f"{server}: needs `{self.name}` on PATH; install the Debian package {self.package}, "
                f"then run make servers again, {WITHOUT_SERVERS}"
            )
        return path


JAVA = Tool("java", "openjdk-17-jre-headless")
JAVAC = Tool("javac", "openjdk-17-jdk-headless")
MAVEN = Tool("mvn", "maven")
NODE = Tool("node", "nodejs")
NPM = Tool("npm", "npm")
DEBOOTSTRAP = Tool("debootstrap", "debootstrap")
UNSHARE = Tool("unshare", "util-linux")
EPMD = Tool("epmd", "erlang-base")
# Downloads are checked against them, and a bare Debian has none.
CERTIFICATES = Tool("/etc/ssl/certs/ca-certificates.crt", "ca-certificates")
