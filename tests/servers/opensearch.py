"""OpenSearch, one node without the security plugin."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import java, web
from tests.servers.base import Server
from tests.servers.cache import Artefact
from tests.servers.needs import Needs
from tests.servers.opensearch_parts import SERVER, VERSION
from tests.servers.ports import LOOPBACK, claim_port
from tests.servers.tools import JAVA

ARCHIVE = "classes.jsa"
CONFIG = """\
cluster.name: redrive
node.name: redrive-1
path.data: {directory}/data
path.logs: {directory}/logs
network.host: {host}
http.port: {port}
transport.port: {transport_port}
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
node.processors: 2
"""
JVM = (
    *java.QUICK_START,
    "-Xms512m",
    "-Xmx512m",
    "-Xss1m",
    "-Dfile.encoding=UTF-8",
    "-Djna.nosys=true",
    "-Djava.locale.providers=SPI,COMPAT",
    "-Djava.security.manager=allow",
    "-XX:-OmitStackTraceInFastThrow",
    "-Dio.netty.noUnsafe=true",
    "-Dio.netty.noKeySetOptimization=true",
    "-Dio.netty.recycler.maxCapacityPerThread=0",
    "-Dio.netty.allocator.numDirectArenas=0",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.disable.jmx=true",
    "-Dopensearch.distribution.type=zip",
    "-Dopensearch.bundled_jdk=false",
)


def _prepare(target: Path, _work: Path) -> None:
    """Once per Java: an archive of the classes the server loads, written where its user may write."""
    server = _Recorder()
    server.start().stop()
    java.require_archive("opensearch", server.directory / ARCHIVE)
    shutil.copy(server.directory / ARCHIVE, target)
    server.discard()


PREPARED = Artefact("opensearch-prepared", VERSION, _prepare, inputs=java.java_release, tools=(JAVA,), after=(SERVER,))


class OpenSearch(Server):
    """Green or yellow when started. It refuses to run as root, so root starts it as nobody."""

    name = "opensearch"
    needs = Needs(artefacts=(SERVER, PREPARED), tools=(JAVA,))
    user = "nobody"

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.transport_port = claim_port()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url}

    @property
    def archive_options(self) -> Sequence[str]:
        return java.read_archive(PREPARED.path / ARCHIVE)

    def prepare(self) -> None:
        for folder in ("config", "data", "logs", "tmp"):
            (self.directory / folder).mkdir(exist_ok=True)
        config = CONFIG.format(host=LOOPBACK, **vars(self))
        (self.directory / "config" / "opensearch.yml").write_text(config)
        (self.directory / "config" / "log4j2.properties").write_text(java.CONSOLE_LOGGING)
        self._hand_over_to_user()

    def _hand_over_to_user(self) -> None:
        if user := self.run_as:
            for path in (self.directory, *self.directory.rglob("*")):
                shutil.chown(path, user)

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "HOME": str(self.directory)}

    def command(self) -> Sequence[str | Path]:
        places = (
            f"-Djava.io.tmpdir={self.directory / 'tmp'}",
            f"-Dopensearch.path.home={SERVER.path}",
            f"-Dopensearch.path.conf={self.directory / 'config'}",
        )
        program = ("-cp", java.class_path(SERVER.path / "lib"), "org.opensearch.bootstrap.OpenSearch")
        return ["java", *JVM, *self.archive_options, *places, *program]

    def is_ready(self) -> bool:
        health = web.get(f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=5s")
        return not health["timed_out"]


class _Recorder(OpenSearch):
    """The same server, leaving the archive of its classes behind when it stops."""

    needs = Needs(artefacts=(SERVER,), tools=(JAVA,))
    stop_timeout = java.WRITES_ARCHIVE

    @property
    def archive_options(self) -> Sequence[str]:
        return java.write_archive(self.directory / ARCHIVE)
