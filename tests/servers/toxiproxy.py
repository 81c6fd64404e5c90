"""Toxiproxy, built from its Go module: connections that can be cut, slowed and spoilt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers import web
from tests.servers.base import Server
from tests.servers.goprogram import GoProgram
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK, claim_port

VERSION = "2.12.0"
PROGRAM = GoProgram(
    server="toxiproxy",
    module="github.com/Shopify/toxiproxy/v2",
    version=f"v{VERSION}",
    checksum="h1:d1x++lYZg/zijXPPcv7PH0MvHMzEI5aX/YuUi/Sw+yg=",
    commands={"toxiproxy-server": "./cmd/server"},
)
TOXIPROXY = PROGRAM.artefact()


@dataclass(frozen=True)
class Proxy:
    """One port in front of a server; connect to `address` instead of the server's own."""

    url: str
    port: int

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def cut(self) -> None:
        """Drops every connection and refuses new ones."""
        web.call("POST", self.url, {"enabled": False})

    def mend(self) -> None:
        """Undoes `cut`."""
        web.call("POST", self.url, {"enabled": True})

    def add(self, toxic: str, *, stream: str = "downstream", **attributes: int) -> None:
        """Adds a toxic under its own type's name, e.g. `add("latency", latency=200)`."""
        body = {"name": toxic, "type": toxic, "stream": stream, "attributes": attributes}
        web.call("POST", f"{self.url}/toxics", body)

    def remove(self, toxic: str) -> None:
        """Takes a toxic out again."""
        web.call("DELETE", f"{self.url}/toxics/{toxic}")


class Toxiproxy(Server):
    """Holds its proxies in memory: a restart forgets them."""

    name = "toxiproxy"
    needs = Needs(artefacts=(TOXIPROXY,))

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"api": self.url}

    def command(self) -> Sequence[str | Path]:
        return [TOXIPROXY.path / "toxiproxy-server", "-host", LOOPBACK, "-port", str(self.port)]

    def is_ready(self) -> bool:
        return bool(web.get(f"{self.url}/version")["version"])

    def proxy(self, upstream: str) -> Proxy:
        """A new, working proxy in front of `host:port`."""
        port = claim_port()
        name = f"proxy-{port}"
        listen = f"{LOOPBACK}:{port}"
        body = {"name": name, "listen": listen, "upstream": upstream, "enabled": True}
        web.call("POST", f"{self.url}/proxies", body)
        return Proxy(f"{self.url}/proxies/{name}", port)
