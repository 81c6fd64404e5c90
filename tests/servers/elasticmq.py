"""ElasticMQ, which speaks the protocol of Amazon SQS, from Maven artefacts. A test can let time pass for it."""

import struct
import zipfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from tests.servers import java, web
from tests.servers.base import Server
from tests.servers.cache import LOCKS, Artefact, run_step
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK
from tests.servers.registries import fetch_maven
from tests.servers.tools import JAVA, JAVAC, MAVEN

VERSION = "1.7.1"
LOCK = f"elasticmq-{VERSION}.sha256"
COORDINATES = (f"org.elasticmq:elasticmq-server_2.13:{VERSION}",)
SOURCE = Path(__file__).parent / "java_sources" / "redrive" / "PassedTime.java"
# As a class file names a class: the kind of the constant, its length, its text.
SYSTEM, OURS = (b"\x01" + struct.pack(">H", len(name)) + name for name in (b"java/lang/System", b"redrive/PassedTime"))
JVM = (*java.QUICK_START, "-Xms64m", "-Xmx384m", "-XX:MaxMetaspaceSize=160m")
CONFIG = """\
include classpath("application.conf")
pekko.loglevel = "WARNING"
pekko.http.server.max-connections = 4096
pekko.http.server.backlog = 4096
pekko.http.server.parsing.max-content-length = 64m
generate-node-address = false
node-address {{ protocol = http, host = "{host}", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-hostname = "{host}", bind-port = {port}, sqs-limits = strict }}
rest-stats {{ enabled = false }}
messages-storage {{ enabled = {durable}, uri = "jdbc:h2:{directory}/messages;WRITE_DELAY=0" }}
queues-storage {{ enabled = {durable}, path = "{directory}/queues.conf" }}
"""
LOGGING = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


def _fetch(target: Path, work: Path) -> None:
    fetch_maven("elasticmq", COORDINATES, LOCK, target, work, transitive=True)


def _compile(target: Path, _: Path) -> None:
    """Our clock, and the classes of ElasticMQ that ask the system for the time: they ask ours instead."""
    run_step("elasticmq", [JAVAC.require("elasticmq"), "-d", str(target), str(SOURCE)])
    for jar in sorted(JARS.path.glob("elasticmq-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                code = archive.read(name)
                if name.endswith(".class") and b"currentTimeMillis" in code:
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (target / name).write_bytes(code.replace(SYSTEM, OURS))


JARS = Artefact("elasticmq", VERSION, _fetch, inputs=(LOCKS / LOCK).read_text, tools=(JAVA, MAVEN))
CLOCK = Artefact("elasticmq-clock", VERSION, _compile, inputs=SOURCE.read_text, tools=(JAVAC,), after=(JARS,))


class ElasticMQ(Server):
    """Queues in memory, or, where they have to outlive a kill, in a file (`durable`)."""

    name = "elasticmq"
    needs = Needs(artefacts=(JARS, CLOCK), tools=(JAVA,))

    def __init__(self, directory: Path | None = None, *, durable: bool = False) -> None:
        super().__init__(directory)
        self.durable = str(durable).lower()
        self._passed = timedelta()

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    @property
    def url(self) -> str:
        """As Redrive takes it: with credentials that nobody checks."""
        return f"sqs://x:x@{self.address}?tls=false&region=elasticmq"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"endpoint": self.endpoint, "url": self.url}

    def let_pass(self, span: timedelta) -> None:
        """Let so much time pass for its queues. The time of those who wait for an answer is their own."""
        self._passed += span
        with (self.directory / "passed").open("r+b") as file:
            file.write(struct.pack(">q", self._passed // timedelta(milliseconds=1)))

    def prepare(self) -> None:
        passed = self.directory / "passed"
        if not passed.exists():
            passed.write_bytes(struct.pack(">q", 0))
        (self.directory / "elasticmq.conf").write_text(CONFIG.format(host=LOOPBACK, **vars(self)))
        (self.directory / "logback.xml").write_text(LOGGING)

    def command(self) -> Sequence[str | Path]:
        given = (
            f"-Dconfig.file={self.directory / 'elasticmq.conf'}",
            f"-Dlogback.configurationFile={self.directory / 'logback.xml'}",
            f"-Dredrive.passed={self.directory / 'passed'}",
        )
        path = f"{CLOCK.path}:{java.class_path(JARS.path)}"
        return ["java", *JVM, *given, "-cp", path, "org.elasticmq.server.Main"]

    def is_ready(self) -> bool:
        return "ListQueuesResponse" in web.call("GET", f"{self.endpoint}/?Action=ListQueues&Version=2012-11-05")
