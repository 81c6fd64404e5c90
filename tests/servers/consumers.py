"""Consumers that others write: Spring for Apache Kafka and Kafka Connect, from Maven artefacts, in one JVM."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import java
from tests.servers.base import Server
from tests.servers.cache import LOCKS, Artefact, run_step
from tests.servers.needs import Needs
from tests.servers.registries import fetch_maven
from tests.servers.tools import JAVA, JAVAC, MAVEN

VERSION = "3.2.4"
CONNECT_VERSION = "3.7.1"
LOCK = f"spring-kafka-{VERSION}.sha256"
COORDINATES = (
    f"org.springframework.kafka:spring-kafka:{VERSION}",
    f"org.apache.kafka:connect-runtime:{CONNECT_VERSION}",
    f"org.apache.kafka:connect-file:{CONNECT_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
SOURCE = Path(__file__).parents[1] / "collect" / "java" / "Consumers.java"
JVM = (*java.QUICK_START, "-Xms64m", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def _fetch(target: Path, work: Path) -> None:
    fetch_maven("consumers", COORDINATES, LOCK, target, work, transitive=True)


def _compile(target: Path, _: Path) -> None:
    compiler = JAVAC.require("consumers")
    run_step("consumers", [compiler, "-d", str(target), "-cp", java.class_path(JARS.path), str(SOURCE)])


JARS = Artefact("spring-kafka", VERSION, _fetch, inputs=(LOCKS / LOCK).read_text, tools=(JAVA, MAVEN))
PROGRAM = Artefact("consumers", VERSION, _compile, inputs=SOURCE.read_text, tools=(JAVAC,), after=(JARS,))


class Consumers(Server):
    """The program of SOURCE on a Kafka: what it reads, and what it does with that, stands there."""

    name = "consumers"
    needs = Needs(artefacts=(JARS, PROGRAM), tools=(JAVA,))

    def __init__(self, bootstrap: str, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.bootstrap = bootstrap
        self.file = self.directory / "sink.txt"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"bootstrap": self.bootstrap}

    def command(self) -> Sequence[str | Path]:
        given = (f"-Dservers={self.bootstrap}", f"-Dfile={self.file}")
        return ["java", *JVM, *given, "-cp", f"{PROGRAM.path}:{java.class_path(JARS.path)}", "Consumers"]

    def is_ready(self) -> bool:
        return "READY" in self.log_of_this_start()

    def got(self, body: str) -> list[str]:
        """The topics by which a record of that body came to a listener, in order."""
        lines = (line.split(" ", 2) for line in self.log_of_this_start().splitlines() if line.startswith("GOT "))
        return [topic for _, topic, found in lines if found == body]
