"""Consul, one server built from its Go module."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import web
from tests.servers.base import Server
from tests.servers.goprogram import GoProgram
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK, claim_port

VERSION = "1.21.0"
MODULE = "github.com/hashicorp/consul"
# Modules nested in the repository: the main one replaces them by folders its published source does not have.
NESTED = ("api", "envoyextensions", "proto-public", "sdk", "troubleshoot")
PROGRAM = GoProgram(
    server="consul",
    module=MODULE,
    version=f"v{VERSION}",
    checksum="h1:YdrBKpOkRe1nyOl1hUONAAvabD5p9kLnQZ1I/GRP4dQ=",
    commands={"consul": "."},
    dropped_replaces=tuple(f"{MODULE}/{name}" for name in NESTED),
)
CONSUL = PROGRAM.artefact()
SETTINGS = "disable_update_check = true, connect { enabled = false }, performance { raft_multiplier = 1 }"


class Consul(Server):
    """A leader of itself when started; keys and services survive a kill."""

    name = "consul"
    needs = Needs(artefacts=(CONSUL,))

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.gossip_port = claim_port()
        self.raft_port = claim_port()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url}

    def command(self) -> Sequence[str | Path]:
        alone = (
            "-server",
            "-bootstrap-expect=1",
            "-node=redrive",
            f"-bind={LOOPBACK}",
            f"-client={LOOPBACK}",
        )
        unused = ("-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1", "-serf-wan-port=-1")
        ports = (
            f"-http-port={self.port}",
            f"-serf-lan-port={self.gossip_port}",
            f"-server-port={self.raft_port}",
        )
        data = (f"-data-dir={self.directory / 'data'}", "-log-level=warn", f"-hcl={SETTINGS}")
        return [CONSUL.path / "consul", "agent", *alone, *unused, *ports, *data]

    def is_ready(self) -> bool:
        leader = web.get(f"{self.url}/v1/status/leader")
        return bool(leader) and bool(web.get(f"{self.url}/v1/catalog/nodes"))
