"""What the servers that run on Java share."""

import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from tests.servers.errors import InstallError

# Started often and for a short while: the cheapest collector, the first compiler only.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")

# Written when the JVM ends, which takes a minute on a machine that builds other servers at the same time.
WRITES_ARCHIVE = timedelta(minutes=10)

CONSOLE_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1.} %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


def class_path(folder: Path) -> str:
    """The jars of a folder, always in one order: a class archive serves only the path it was made with."""
    return ":".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def write_archive(archive: Path) -> Sequence[str]:
    """Options that make a JVM leave an archive of its loaded classes when it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}"]


def require_archive(server: str, archive: Path) -> None:
    """The archive is there; without it the server would start all the same, at half the speed."""
    if not archive.exists():
        raise InstallError(f"{server}: Java left no archive of its classes when it ended; run make servers again")


def read_archive(archive: Path) -> Sequence[str]:
    """Options that start a JVM from such an archive, about twice as fast; a stale one is silently ignored."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def java_release() -> str:
    """Which Java would run, so that archives are made anew when it changes; empty where there is none."""
    java = shutil.which("java")
    release = Path(java).resolve().parents[1] / "release" if java else None
    return release.read_text() if release and release.exists() else ""
