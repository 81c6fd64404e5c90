"""One real server as a child process: its own directory, its own ports, gone when we are gone."""

import http.client
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Self

from tests.servers import child
from tests.servers.errors import ServerFailed
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK, claim_port
from tests.servers.rundirs import new_directory
from tests.servers.waiting import wait_until

# What a server that is still coming up answers with.
NOT_YET = (OSError, ValueError, KeyError, http.client.HTTPException)


class Lifecycle(ABC):
    """What servers and groups of servers have in common: they are started, looked at and thrown away."""

    name: ClassVar[str]
    needs: ClassVar[Needs] = Needs()

    @property
    @abstractmethod
    def addresses(self) -> Mapping[str, str]:
        """Where it can be reached, by what for."""

    @abstractmethod
    def start(self) -> Self:
        """Returns when the server answers; raises ServerFailed, with the end of its log, if it never does."""

    @abstractmethod
    def require_running(self) -> None:
        """Raises ServerFailed, with the end of the log, if the process is not there (any more)."""

    @abstractmethod
    def discard(self) -> None:
        """Kills it and removes its data; harmless when done twice."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.discard()


class Server(Lifecycle):
    """A subclass says how to write the config, what to run, and how to tell that it is ready."""

    start_timeout: ClassVar[timedelta] = timedelta(seconds=120)
    stop_timeout: timedelta = timedelta(seconds=30)
    user: ClassVar[str | None] = None

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or new_directory(self.name)
        self.port = claim_port()
        self.log = self.directory / "server.log"
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The server in the foreground."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it serves now; errors of NOT_YET count as no."""

    def prepare(self) -> None:
        """Writes what the server reads; called before each start, must keep the data of the one before."""

    def environment(self) -> Mapping[str, str]:
        return os.environ

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; ServerFailed if there is no process."""
        self.require_running()
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Starts the process and returns at once."""
        if self.is_running:
            raise ServerFailed(f"{self.name} on {self.address} is running already")
        self.needs.require(self.name)
        self.prepare()
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = child.spawn(
            self.command(), cwd=self.directory, log=self.log, env=self.environment(), user=self.run_as
        )

    @property
    def run_as(self) -> str | None:
        """The user to change to; nobody but root can, or has to."""
        return self.user if os.geteuid() == 0 else None

    def wait_until_ready(self) -> None:
        """Returns when the launched server answers."""
        try:
            wait_until(self._answers, f"{self.name} on {self.address}", self.start_timeout)
        except TimeoutError as error:
            self.kill9()
            raise ServerFailed(f"{error}\n{self.log_tail()}") from error

    def _answers(self) -> bool:
        self.require_running()
        try:
            return self.is_ready()
        except NOT_YET:
            return False

    def require_running(self) -> None:
        if self._process is None:
            raise ServerFailed(f"{self.name} on {self.address} is not started")
        if (code := self._process.poll()) is not None:
            raise ServerFailed(f"{self.name} on {self.address} {child.how_it_ended(code)}\n{self.log_tail()}")

    def log_of_this_start(self) -> str:
        """What the server has written since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 25) -> str:
        """The end of the log, for an error message."""
        return "\n".join(self.log_of_this_start().splitlines()[-lines:])

    def stop(self) -> None:
        """Ends it the polite way; data and port stay for the next start."""
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """Ends it as a crash would; data and port stay for the next start."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            child.end(self._process, how, self.stop_timeout.total_seconds())

    def restart(self) -> Self:
        """Stops and starts it on the same data and the same ports."""
        self.stop()
        return self.start()

    def discard(self) -> None:
        self.kill9()
        self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)
