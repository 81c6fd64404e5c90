"""RabbitMQ from Debian, with management and Prometheus plugins, apart from any RabbitMQ of the machine.

It is the 3.10 of Debian 12; with REDRIVE_SERVERS_RABBITMQ=4 it is the 4.0 of Debian 13.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import web
from tests.servers.base import Server
from tests.servers.debian13 import inside, tree
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK, claim_port
from tests.servers.tools import EPMD, UNSHARE

# Not the wrappers on PATH, which change to the user rabbitmq.
PROGRAMS = Path("/usr/lib/rabbitmq/bin")
IS_4 = os.environ.get("REDRIVE_SERVERS_RABBITMQ") == "4"
TREE_OF_4 = tree("rabbitmq-server", "4.0.5", "usr/lib/rabbitmq/lib/rabbitmq_server-4.0.5")
NEEDS_OF_4 = Needs(artefacts=(TREE_OF_4,), tools=(UNSHARE, EPMD))
NODE = "redrive@localhost"
GUEST = ("guest", "guest")
CONFIG = """\
listeners.tcp.1 = {host}:{port}
management.tcp.ip = {host}
management.tcp.port = {management_port}
prometheus.tcp.ip = {host}
prometheus.tcp.port = {metrics_port}
log.console = true
log.console.level = info
log.file = false
raft.wal_max_size_bytes = 33554432
"""


class PortMapper(Server):
    """Erlang's epmd, private to one RabbitMQ."""

    name = "epmd"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"epmd": self.address}

    def command(self) -> Sequence[str | Path]:
        return ["epmd", "-port", str(self.port), "-address", LOOPBACK]

    def is_ready(self) -> bool:
        socket.create_connection((LOOPBACK, self.port), timeout=5).close()
        return True


class RabbitMQ(Server):
    """One node. Counts in the management API lag behind; a passive declare tells the present."""

    name = "rabbitmq"
    needs = NEEDS_OF_4 if IS_4 else Needs(packages=("rabbitmq-server",))

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.management_port = claim_port()
        self.metrics_port = claim_port()
        self.distribution_port = claim_port()
        self.port_mapper = PortMapper(self.directory / "epmd")

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.address}/"

    @property
    def management_url(self) -> str:
        return f"http://{LOOPBACK}:{self.management_port}"

    @property
    def metrics_url(self) -> str:
        return f"http://{LOOPBACK}:{self.metrics_port}/metrics"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url, "management": self.management_url, "metrics": self.metrics_url}

    def prepare(self) -> None:
        for folder in ("mnesia", "log", "generated", "conf.d", "epmd"):
            (self.directory / folder).mkdir(exist_ok=True)
        self._write_cookie()
        self._write("enabled_plugins", "[rabbitmq_management, rabbitmq_prometheus].\n")
        self._write("advanced.config", "[].\n")
        self._write("environment", "")
        self._write("rabbitmq.conf", CONFIG.format(host=LOOPBACK, **vars(self)))
        if not self.port_mapper.is_running:
            self.port_mapper.start()

    def _write_cookie(self) -> None:
        cookie = self.directory / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text("redrive")
            cookie.chmod(0o400)

    def _write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def environment(self) -> Mapping[str, str]:
        """Everything the scripts would otherwise take from /etc, /var and the user's home."""
        own = self.directory
        return {
            **os.environ,
            "HOME": str(own),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self.port_mapper.port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": NODE,
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_BASE": str(own),
            "RABBITMQ_MNESIA_BASE": str(own / "mnesia"),
            "RABBITMQ_LOG_BASE": str(own / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(own / "generated"),
            "RABBITMQ_CONF_ENV_FILE": str(own / "environment"),
            "RABBITMQ_CONFIG_FILE": str(own / "rabbitmq.conf"),
            "RABBITMQ_CONFIG_FILES": str(own / "conf.d" / "*.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(own / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(own / "rabbitmq.pid"),
            # The script then becomes the Erlang VM instead of waiting beside it, so our signals reach the VM.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-noinput -kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
            ),
        }

    def command(self) -> Sequence[str | Path]:
        return self._program("rabbitmq-server")

    def control(self, *words: str) -> None:
        """What `rabbitmqctl` does."""
        command = self._program("rabbitmqctl", "-q", "-n", NODE, *words)
        subprocess.run(command, env=dict(self.environment()), check=True, capture_output=True, timeout=300)

    def _program(self, name: str, *words: str) -> Sequence[str | Path]:
        command: list[str | Path] = [PROGRAMS / name, *words]
        return inside(TREE_OF_4.path, self.directory, command) if IS_4 else command

    def is_ready(self) -> bool:
        checks = f"{self.management_url}/api/health/checks"
        for check in ("local-alarms", f"port-listener/{self.port}"):
            if web.get(f"{checks}/{check}", GUEST)["status"] != "ok":
                return False
        return True

    def _end(self, how: signal.Signals) -> None:
        super()._end(how)
        self.port_mapper.kill9()
