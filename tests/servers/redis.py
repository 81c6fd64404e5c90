"""Redis from Debian, writing an append-only file."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.base import Server
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK

CONFIG = """\
bind {host}
port {port}
dir {directory}
daemonize no
appendonly yes
appendfsync {fsync}
maxmemory 512mb
maxmemory-policy noeviction
"""


class Redis(Server):
    """Keeps what it acknowledged through a kill -9; through a power cut too with `fsync="always"`.

    `lines` stand at the end of its redis.conf, and win.
    """

    name = "redis"
    needs = Needs(packages=("redis-server",))

    def __init__(self, directory: Path | None = None, *, fsync: str = "everysec", lines: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self.fsync = fsync
        self.lines = lines

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url}

    @property
    def config(self) -> Path:
        return self.directory / "redis.conf"

    def prepare(self) -> None:
        settings = {"host": LOOPBACK, "port": self.port, "directory": self.directory, "fsync": self.fsync}
        self.config.write_text(CONFIG.format_map(settings) + "".join(f"{line}\n" for line in self.lines))

    def command(self) -> Sequence[str | Path]:
        return ["redis-server", self.config]

    def is_ready(self) -> bool:
        """A server that still reads its file back answers -LOADING."""
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
