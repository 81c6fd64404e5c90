"""Apache Kafka from Maven artefacts: one node or several, each both broker and controller."""

import base64
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.servers import java
from tests.servers.base import Lifecycle, Server
from tests.servers.cache import LOCKS, Artefact, run_step
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK, claim_port
from tests.servers.registries import fetch_maven
from tests.servers.rundirs import new_directory
from tests.servers.tools import JAVA, MAVEN

VERSION = "4.3.1"
LOCK = f"kafka-{VERSION}.sha256"
# Kafka logs through slf4j 1.7, and says nothing without a binding of that line.
COORDINATES = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
CHECKPOINT = "bootstrap.checkpoint"
ARCHIVE = "classes.jsa"
JVM = (*java.QUICK_START, "-Xms64m", "-Xmx256m", "-XX:MaxMetaspaceSize=128m")

CONFIG = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{address},CONTROLLER://{controller_address}
advertised.listeners=PLAINTEXT://{address}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor={replicas}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=3
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync}
share.coordinator.state.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=2
background.threads=2
num.recovery.threads.per.data.dir=1
# The last nodes of a cluster that stops as a whole have nobody to hand their partitions to, and would wait.
controlled.shutdown.enable=false
"""


def _fetch(target: Path, work: Path) -> None:
    fetch_maven("kafka", COORDINATES, LOCK, target, work, transitive=True)


JARS = Artefact("kafka", VERSION, _fetch, inputs=(LOCKS / LOCK).read_text, tools=(JAVA, MAVEN))


def _prepare(target: Path, work: Path) -> None:
    """Once per Java: the checkpoint every new node begins with, and an archive of the classes it loads."""
    cluster = Kafka(directory=work, prepared=target, jvm_options=java.write_archive(target / ARCHIVE))
    node = cluster.nodes[0]
    node.write_config()
    tool = ["java", *JVM, "-cp", java.class_path(JARS.path), "kafka.tools.StorageTool"]
    run_step("kafka", [*tool, "format", "-t", cluster.cluster_id, "-c", str(node.config)])
    shutil.move(node.data / CHECKPOINT, target)
    node.stop_timeout = java.WRITES_ARCHIVE
    cluster.start()
    cluster.stop()
    java.require_archive("kafka", target / ARCHIVE)


PREPARED = Artefact("kafka-prepared", VERSION, _prepare, inputs=java.java_release, tools=(JAVA,), after=(JARS,))


def _new_id() -> str:
    """A random id as Kafka writes them; never with a leading dash, which its tools take for an option."""
    return "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


class KafkaNode(Server):
    """One broker of a `Kafka`, to be killed and restarted on its own."""

    name = "kafka"
    needs = Needs(artefacts=(JARS,), tools=(JAVA,))

    def __init__(self, cluster: "Kafka", node_id: int) -> None:
        super().__init__(_made(cluster.directory / f"node-{node_id}"))
        self.cluster = cluster
        self.node_id = node_id
        self.controller_address = f"{LOOPBACK}:{claim_port()}"
        self.config = self.directory / "server.properties"
        self.data = self.directory / "data"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"bootstrap": self.address}

    def prepare(self) -> None:
        self.write_config()
        if not self.data.exists():
            self._format()

    def write_config(self) -> None:
        """The node's settings and its logging."""
        settings = {**vars(self), "address": self.address, **self.cluster.shared_settings()}
        own = "".join(f"{name}={value}\n" for name, value in self.cluster.settings.items())
        self.config.write_text(CONFIG.format_map(settings) + own)
        (self.directory / "log4j2.properties").write_text(java.CONSOLE_LOGGING)

    def _format(self) -> None:
        """Leaves what Kafka's own `format` would, without the second that takes."""
        self.data.mkdir()
        shutil.copy(self.cluster.prepared / CHECKPOINT, self.data)
        properties = {
            "version": "1",
            "cluster.id": self.cluster.cluster_id,
            "node.id": str(self.node_id),
            "directory.id": _new_id(),
        }
        lines = (f"{key}={value}\n" for key, value in properties.items())
        (self.data / "meta.properties").write_text("".join(lines))

    def command(self) -> Sequence[str | Path]:
        scratch = _made(self.directory / "tmp")
        logging = self.directory / "log4j2.properties"
        places = (f"-Djava.io.tmpdir={scratch}", f"-Dlog4j2.configurationFile={logging}")
        program = ("-cp", java.class_path(JARS.path), "kafka.Kafka", self.config)
        return ["java", *JVM, *self.cluster.jvm_options, *places, *program]

    def is_ready(self) -> bool:
        """Written when the controllers let the broker serve."""
        return "Kafka Server started" in self.log_of_this_start()


class Kafka(Lifecycle):
    """`bootstrap` reaches all nodes; with three, topics have three replicas and two must be in sync."""

    name = "kafka"
    needs = Needs(artefacts=(JARS, PREPARED), tools=(JAVA,))

    def __init__(
        self,
        directory: Path | None = None,
        *,
        size: int = 1,
        prepared: Path | None = None,
        jvm_options: Sequence[str] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.settings = settings or {}  # more lines of server.properties, over those of CONFIG
        self.directory = directory or new_directory(self.name)
        self.prepared = prepared or PREPARED.path
        self.jvm_options = java.read_archive(self.prepared / ARCHIVE) if jvm_options is None else jvm_options
        self.cluster_id = _new_id()
        self.nodes = [KafkaNode(self, node_id) for node_id in range(1, size + 1)]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"bootstrap": self.bootstrap}

    def shared_settings(self) -> Mapping[str, object]:
        replicas = min(len(self.nodes), 3)
        voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in self.nodes)
        return {"voters": voters, "replicas": replicas, "in_sync": 2 if replicas == 3 else 1}

    def start(self) -> Self:
        if self.prepared == PREPARED.path:
            self.needs.require(self.name)
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()
        return self

    def require_running(self) -> None:
        for node in self.nodes:
            node.require_running()

    def stop(self) -> None:
        """Ends all nodes the polite way."""
        for node in self.nodes:
            node.stop()

    def kill9(self) -> None:
        """Ends all nodes as a power cut would."""
        for node in self.nodes:
            node.kill9()

    def restart(self) -> Self:
        """Stops and starts all nodes on the same data and ports."""
        self.stop()
        return self.start()

    def discard(self) -> None:
        for node in self.nodes:
            node.discard()
        shutil.rmtree(self.directory, ignore_errors=True)


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
