"""PostgreSQL from Debian, alone or streaming to a standby, and PgBouncer in front of it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from tests.servers import child
from tests.servers.base import Server
from tests.servers.errors import ServerFailed
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK
from tests.servers.waiting import wait_until

BIN = Path("/usr/lib/postgresql/15/bin")
OWNER = "redrive"
CONFIG = """\
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
max_connections = 200
shared_buffers = 64MB
max_wal_size = 2GB
wal_level = replica
max_wal_senders = 4
log_min_messages = warning
"""
_numbers = count(1)


class PostgreSQL(Server):
    """Durable through a kill -9. It refuses to run as root, so root starts it as postgres.

    `lines` stand at the end of its postgresql.conf, and win.
    """

    name = "postgresql"
    needs = Needs(packages=("postgresql-15", "postgresql-contrib"))
    user = "postgres"

    def __init__(self, directory: Path | None = None, *, lines: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self.lines = lines

    @property
    def url(self) -> str:
        """The URL of the database that every server has."""
        return self.url_of("postgres")

    def url_of(self, database: str, user: str = OWNER) -> str:
        return f"postgresql://{user}@{self.address}/{database}"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url}

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def prepare(self) -> None:
        if not (self.data / "PG_VERSION").exists():
            if user := self.run_as:
                shutil.chown(self.directory, user)
            self.make_data()
        settings = CONFIG.format(host=LOOPBACK, port=self.port)
        (self.data / "redrive.conf").write_text(settings + "".join(f"{line}\n" for line in self.lines))
        if "redrive.conf" not in (self.data / "postgresql.conf").read_text():
            with (self.data / "postgresql.conf").open("a") as config:
                config.write("include 'redrive.conf'\n")

    def make_data(self) -> None:
        """Makes the data directory; called before the first start."""
        self.run("initdb", "-D", self.data, "-A", "trust", "-U", OWNER, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")

    def run(self, program: str, *arguments: str | Path) -> None:
        """Runs a program of PostgreSQL's as the server's user."""
        made = child.spawn(
            [BIN / program, *arguments], cwd=self.directory, log=self.log, env=os.environ, user=self.run_as
        )
        if code := made.wait():
            raise ServerFailed(f"{program} {child.how_it_ended(code)}\n{self.log_tail()}")

    def command(self) -> Sequence[str | Path]:
        return [BIN / "postgres", "-D", self.data]

    def is_ready(self) -> bool:
        return accepts(self.port)

    def stop(self) -> None:
        """Ends it at once and in order: SIGTERM would wait until the last client has gone."""
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        """Its backends have sessions of their own, and what is left of one keeps the next start from the data."""
        backends = _children(self._process.pid) if self._process is not None else []
        super()._end(how)
        for pid in backends:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(_is_alive, backends)), "the backends to end")

    def new_database(self, name: str | None = None, *, user: str = OWNER) -> str:
        """Makes an empty database, and returns its URL."""
        name = name or f"test_{os.getpid()}_{next(_numbers)}"
        self.sql(f'CREATE DATABASE "{name}"')
        return self.url_of(name, user)

    def sql(self, statement: str, *, database: str = "postgres") -> str:
        """Runs SQL as the owner of everything, by psql; returns what it printed."""
        plain = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
        psql = [str(BIN / "psql"), *plain, "-d", self.url_of(database)]
        done = subprocess.run(psql, input=statement, capture_output=True, text=True)
        if done.returncode:
            raise ServerFailed(f"psql: {done.stderr}")
        return done.stdout.strip()

    def configure(self, **settings: str) -> None:
        """Changes settings that need no restart; `configure(fsync="off")`."""
        for name, value in settings.items():
            self.sql(f"ALTER SYSTEM SET {name} = '{value}'")
        self.sql("SELECT pg_reload_conf()")


class Standby(PostgreSQL):
    """A standby that streams from a primary, until it is promoted."""

    def __init__(self, primary: PostgreSQL, *, lines: Sequence[str] = ()) -> None:
        super().__init__(lines=lines)
        self.primary = primary

    def make_data(self) -> None:
        named = f"host={LOOPBACK} port={self.primary.port} user={OWNER} application_name=standby"
        self.run("pg_basebackup", "-D", self.data, "-d", named, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def promote(self) -> None:
        """Makes it a primary; returns when it takes writes."""
        self.sql("SELECT pg_promote(true)")


class PgBouncer(Server):
    """In transaction mode in front of one PostgreSQL: every database of that, under the same name."""

    name = "pgbouncer"
    needs = Needs(packages=("pgbouncer", "postgresql-15"))
    user = "postgres"

    def __init__(self, server: PostgreSQL, *, lines: Sequence[str] = ()) -> None:
        super().__init__()
        self.server = server
        self.lines = lines

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, user: str = OWNER) -> str:
        return f"postgresql://{user}@{self.address}/{database}"

    def through(self, url: str) -> str:
        """The URL of the same database through here."""
        return url.replace(self.server.address, self.address)

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url}

    def prepare(self) -> None:
        if user := self.run_as:
            shutil.chown(self.directory, user)
        (self.directory / "users.txt").write_text(f'"{OWNER}" ""\n')
        settings = [
            "[databases]",
            f"* = host={LOOPBACK} port={self.server.port}",
            "[pgbouncer]",
            f"listen_addr = {LOOPBACK}",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = trust",
            f"auth_file = {self.directory}/users.txt",
            "pool_mode = transaction",
            "default_pool_size = 4",
            "max_client_conn = 500",
            "server_idle_timeout = 5",
            *self.lines,
        ]
        (self.directory / "pgbouncer.ini").write_text("\n".join(settings) + "\n")

    def command(self) -> Sequence[str | Path]:
        return ["/usr/sbin/pgbouncer", self.directory / "pgbouncer.ini"]

    def is_ready(self) -> bool:
        return accepts(self.port)


def accepts(port: int) -> bool:
    """Whether whatever speaks PostgreSQL there takes connections."""
    place = ("-h", LOOPBACK, "-p", str(port), "-U", OWNER, "-d", "postgres")
    return subprocess.run([str(BIN / "pg_isready"), "-q", *place]).returncode == 0


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _is_alive(pid: int) -> bool:
    """Whether the process runs: a zombie that nobody has waited for yet does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
