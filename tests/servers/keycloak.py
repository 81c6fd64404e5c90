"""Keycloak from Maven Central, built and filled with its realm once, so that a start of it is quick."""

import json
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.servers import java, web
from tests.servers.base import Server
from tests.servers.cache import LOCKS, Artefact, run_step
from tests.servers.keycloak_realm import CLI, PASSWORD, REALM, REALM_FILE
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK
from tests.servers.registries import fetch_maven
from tests.servers.tools import JAVA, MAVEN

VERSION = "24.0.5"
LOCK = f"keycloak-{VERSION}.sha256"
COORDINATE = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
ARCHIVE = "classes.jsa"
ADMIN = ("admin", "admin")
JVM = (
    *java.QUICK_START,
    "-Xms64m",
    "-Xmx384m",
    "-XX:MaxMetaspaceSize=256m",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "util.concurrent", "security")),
    "-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
    "-Dpicocli.disable.closures=true",
)
_LINKED = ("lib", "conf", "providers", "themes")


def _build(target: Path, work: Path) -> None:
    """Unpacked, and built for a database in a file: what `start --optimized` wants."""
    fetched = work / "fetched"
    fetch_maven("keycloak", [COORDINATE], LOCK, fetched, work, transitive=False)
    with zipfile.ZipFile(fetched / f"keycloak-quarkus-dist-{VERSION}.zip") as archive:
        archive.extractall(work)
    for part in (work / f"keycloak-{VERSION}").iterdir():
        shutil.move(part, target)
    run_step("keycloak", [*_program(target, ()), "build", "--db=dev-file", "--cache=local"])


def _program(home: Path, options: Sequence[str]) -> list[str | Path]:
    places = (f"-Dkc.home.dir={home}", f"-Djboss.server.config.dir={home / 'conf'}")
    path = home / "lib" / "quarkus-run.jar"
    return ["java", *JVM, *options, *places, "-cp", path, "io.quarkus.bootstrap.runner.QuarkusEntryPoint"]


def _prepare(target: Path, _work: Path) -> None:
    """Once per Java and realm: the database with the realm in it, and an archive of the classes that are loaded."""
    server = _Recorder()
    server.start().stop()
    java.require_archive("keycloak", server.directory / ARCHIVE)
    shutil.copy(server.directory / ARCHIVE, target)
    shutil.copytree(server.directory / "data" / "h2", target / "h2")
    server.discard()


def _prepared_from() -> str:
    return java.java_release() + json.dumps(REALM_FILE)


BUILT = Artefact("keycloak", VERSION, _build, inputs=(LOCKS / LOCK).read_text, tools=(JAVA, MAVEN))
PREPARED = Artefact("keycloak-prepared", VERSION, _prepare, inputs=_prepared_from, tools=(JAVA,), after=(BUILT,))


class Keycloak(Server):
    """An issuer of tokens with the realm of `keycloak_realm.py`; its `issuer` is what Redrive is set to."""

    name = "keycloak"
    needs = Needs(artefacts=(BUILT, PREPARED), tools=(JAVA,))
    start_timeout = timedelta(minutes=4)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def issuer(self) -> str:
        return f"{self.url}/realms/{REALM}"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"issuer": self.issuer}

    @property
    def jvm_options(self) -> Sequence[str]:
        return java.read_archive(PREPARED.path / ARCHIVE)

    def prepare(self) -> None:
        _link(self.directory)
        if not (self.directory / "data").exists():
            shutil.copytree(PREPARED.path / "h2", self.directory / "data" / "h2")

    def environment(self) -> Mapping[str, str]:
        name, password = ADMIN
        return {**os.environ, "KEYCLOAK_ADMIN": name, "KEYCLOAK_ADMIN_PASSWORD": password}

    def command(self) -> Sequence[str | Path]:
        where = (f"--http-host={LOOPBACK}", f"--http-port={self.port}", "--http-enabled=true")
        names = ("--hostname-strict=false", "--hostname-strict-https=false")
        return [*_program(self.directory, self.jvm_options), "start", "--optimized", *where, *names]

    def is_ready(self) -> bool:
        found: bool = web.get(f"{self.issuer}/.well-known/openid-configuration")["issuer"] == self.issuer
        return found

    def tokens_of(self, user: str, client: str = CLI) -> dict[str, Any]:
        """What the token endpoint answers to somebody's password."""
        return self._token(REALM, grant_type="password", client_id=client, username=user, password=PASSWORD)

    def access_token(self, user: str) -> str:
        """What somebody shows to the API."""
        return str(self.tokens_of(user)["access_token"])

    def give_role(self, user: str, role: str) -> None:
        """Let somebody have a role of the realm."""
        self._roles("POST", user, role)

    def take_role(self, user: str, role: str) -> None:
        """Take a role of the realm from somebody; what was signed before still has it."""
        self._roles("DELETE", user, role)

    def end_sessions(self, user: str) -> None:
        """Sign somebody out everywhere: no refresh token of theirs is good for anything."""
        self._manage("POST", f"users/{self._id_of(user)}/logout")

    def _roles(self, method: str, user: str, role: str) -> None:
        found = self._manage("GET", f"roles/{role}")
        self._manage(method, f"users/{self._id_of(user)}/role-mappings/realm", [found])

    def _id_of(self, user: str) -> str:
        return str(self._manage("GET", f"users?exact=true&username={user}")[0]["id"])

    def _manage(self, method: str, path: str, body: Any = None) -> Any:
        name, password = ADMIN
        token = self._token("master", grant_type="password", client_id="admin-cli", username=name, password=password)
        text = web.call(method, f"{self.url}/admin/realms/{REALM}/{path}", body, bearer=token["access_token"])
        return json.loads(text) if text else None

    def _token(self, realm: str, **form: str) -> dict[str, Any]:
        url = f"{self.url}/realms/{realm}/protocol/openid-connect/token"
        found: dict[str, Any] = json.loads(web.submit(url, {"scope": "openid", **form}))
        return found


def _link(directory: Path) -> None:
    """A home of its own, whose programs are those that were built."""
    for name in _LINKED:
        if not (directory / name).exists():
            (directory / name).symlink_to(BUILT.path / name)


class _Recorder(Keycloak):
    """The same server, which reads the realm, and leaves its database and the archive of its classes behind."""

    needs = Needs(artefacts=(BUILT,), tools=(JAVA,))
    stop_timeout = java.WRITES_ARCHIVE
    start_timeout = java.WRITES_ARCHIVE

    @property
    def jvm_options(self) -> Sequence[str]:
        return java.write_archive(self.directory / ARCHIVE)

    def prepare(self) -> None:
        _link(self.directory)
        folder = self.directory / "data" / "import"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{REALM}-realm.json").write_text(json.dumps(REALM_FILE))

    def command(self) -> Sequence[str | Path]:
        return [*super().command(), "--import-realm"]
