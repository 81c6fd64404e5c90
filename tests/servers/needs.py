"""What a server needs on this machine before it can be started."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.servers import debian
from tests.servers.cache import Artefact
from tests.servers.errors import NotInstalled
from tests.servers.tools import Tool


@dataclass(frozen=True)
class Needs:
    """Debian packages, directories of the cache, and commands that are called to start it."""

    packages: tuple[str, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    tools: tuple[Tool, ...] = ()

    def lacking(self) -> list[str]:
        """Everything that is absent or damaged, by name."""
        tools = [tool.name for tool in self.tools if not tool.is_there]
        artefacts = [artefact.path.name for artefact in self.artefacts if not artefact.is_intact()]
        return [*tools, *debian.missing(self.packages), *artefacts]

    def require(self, server: str) -> None:
        """Returns only if all is there; otherwise says to run make servers."""
        if lacking := self.lacking():
            raise NotInstalled(server, ", ".join(lacking))

    def to_make(self) -> Iterator[Artefact]:
        """The artefacts that are absent or damaged, and those that their builds want and that are, too."""
        waiting = list(self.artefacts)
        while waiting:
            artefact = waiting.pop()
            if not artefact.is_intact():
                yield artefact
                waiting += artefact.after

    def packages_to_bring(self) -> list[str]:
        """The Debian packages to ask for: its own, and those of tools that are not there."""
        tools = [*self.tools, *(tool for artefact in self.to_make() for tool in artefact.tools)]
        return [*self.packages, *(tool.package for tool in tools if not tool.is_there)]
