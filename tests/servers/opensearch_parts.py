"""How OpenSearch is put together from Maven artefacts: the bare server, and the modules a store needs."""

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.servers.cache import LOCKS, Artefact
from tests.servers.registries import fetch_maven
from tests.servers.tools import JAVA, MAVEN

VERSION = "2.19.6"
LOCK = f"opensearch-{VERSION}.sha256"
BARE_SERVER = f"org.opensearch.distribution.integ-test-zip:opensearch:{VERSION}:zip"


@dataclass(frozen=True)
class Module:
    """A module as the full distribution has it: its entry class, its jars, what it leans on and may do."""

    name: str
    entry: str
    jars: tuple[str, ...]
    extends: str = ""
    permissions: tuple[str, ...] = ()

    def install(self, fetched: Path, modules: Path) -> None:
        """Moves its jars into a folder of its own and describes it to the server."""
        folder = modules / self.name
        folder.mkdir()
        for coordinate in self.jars:
            _, name, version = coordinate.split(":")
            shutil.move(fetched / f"{name}-{version}.jar", folder)
        (folder / "plugin-descriptor.properties").write_text(self._descriptor())
        if self.permissions:
            grants = "".join(f"  permission {permission};\n" for permission in self.permissions)
            (folder / "plugin-security.policy").write_text(f"grant {{\n{grants}}};\n")

    def _descriptor(self) -> str:
        return (
            f"name={self.name}\ndescription={self.name}\nversion={VERSION}\nopensearch.version={VERSION}\n"
            f"java.version=11\nclassname=org.opensearch.{self.entry}\nextended.plugins={self.extends}\n"
            "has.native.controller=false\n"
        )


def _own(*names: str) -> tuple[str, ...]:
    return tuple(f"org.opensearch.plugin:{name}:{VERSION}" for name in names)


MODULES = (
    Module(
        "lang-painless",
        "painless.PainlessPlugin",
        (
            *_own("lang-painless", "opensearch-scripting-painless-spi"),
            "org.antlr:antlr4-runtime:4.13.1",
            "org.ow2.asm:asm:9.7",
            "org.ow2.asm:asm-analysis:9.7",
            "org.ow2.asm:asm-commons:9.7",
            "org.ow2.asm:asm-tree:9.7",
            "org.ow2.asm:asm-util:9.7",
        ),
        permissions=(
            'java.lang.RuntimePermission "createClassLoader"',
            'java.lang.RuntimePermission "getClassLoader"',
        ),
    ),
    Module(
        "analysis-common",
        "analysis.common.CommonAnalysisPlugin",
        _own("analysis-common"),
        extends="lang-painless",
    ),
    Module(
        "ingest-common",
        "ingest.common.IngestCommonPlugin",
        (
            *_own("ingest-common"),
            f"org.opensearch:opensearch-grok:{VERSION}",
            f"org.opensearch:opensearch-dissect:{VERSION}",
            "org.jruby.joni:joni:2.2.1",
            "org.jruby.jcodings:jcodings:1.0.61",
        ),
        extends="lang-painless",
    ),
    Module(
        "reindex",
        "index.reindex.ReindexPlugin",
        (
            *_own("reindex-client"),
            f"org.opensearch.client:opensearch-rest-client:{VERSION}",
            f"org.opensearch:opensearch-ssl-config:{VERSION}",
            "org.apache.httpcomponents:httpclient:4.5.14",
            "org.apache.httpcomponents:httpcore:4.4.16",
            "org.apache.httpcomponents:httpasyncclient:4.1.5",
            "org.apache.httpcomponents:httpcore-nio:4.4.16",
            "commons-codec:commons-codec:1.18.0",
            "commons-logging:commons-logging:1.2",
        ),
        permissions=('java.net.SocketPermission "*", "connect"', 'java.net.NetPermission "getProxySelector"'),
    ),
    Module("mapper-extras", "index.mapper.MapperExtrasPlugin", _own("mapper-extras-client")),
    Module("parent-join", "join.ParentJoinPlugin", _own("parent-join-client")),
    Module(
        "lang-mustache",
        "script.mustache.MustachePlugin",
        (*_own("lang-mustache-client"), "com.github.spullara.mustache.java:compiler:0.9.14"),
        permissions=('java.lang.RuntimePermission "accessDeclaredMembers"',),
    ),
)


def _assemble(target: Path, work: Path) -> None:
    """The bare server unpacked, each module in its place."""
    fetched = work / "fetched"
    coordinates = [BARE_SERVER, *(jar for module in MODULES for jar in module.jars)]
    fetch_maven("opensearch", coordinates, LOCK, fetched, work, transitive=False)
    with zipfile.ZipFile(fetched / f"opensearch-{VERSION}.zip") as bare:
        bare.extractall(work)
    for part in (work / f"opensearch-{VERSION}").iterdir():
        shutil.move(part, target)
    for module in MODULES:
        module.install(fetched, target / "modules")


SERVER = Artefact("opensearch", VERSION, _assemble, inputs=(LOCKS / LOCK).read_text, tools=(JAVA, MAVEN))
