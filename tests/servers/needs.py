"""What a server needs on this machine before it can be started."""

import shutil
from dataclasses import dataclass

from tests.servers import debian
from tests.servers.cache import Artefact, require_tool
from tests.servers.errors import NotInstalled


@dataclass(frozen=True)
class Needs:
    """Debian packages, directories of the cache, and commands that the machine itself has to bring."""

    packages: tuple[str, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    tools: tuple[str, ...] = ()

    def lacking(self) -> list[str]:
        """Everything that is absent or damaged, by name."""
        tools = [tool for tool in self.tools if shutil.which(tool) is None]
        artefacts = [artefact.path.name for artefact in self.artefacts if not artefact.is_intact()]
        return [*tools, *debian.missing(self.packages), *artefacts]

    def require(self, server: str) -> None:
        """Returns only if all is there; otherwise says to run make servers."""
        if lacking := self.lacking():
            raise NotInstalled(server, ", ".join(lacking))

    def install(self, server: str) -> None:
        """Brings what is lacking, and touches nothing else. The caller holds `install_lock`."""
        for tool in self.tools:
            require_tool(server, tool, f"install {tool}")
        debian.install(server, self.packages)
        for artefact in self.artefacts:
            if not artefact.is_intact():
                artefact.install()
