"""The commands that an install runs, so that all of them end when it ends."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.servers.errors import InstallError


class Stopped(InstallError):
    """A step was ended, or not begun, because the whole install is being ended."""


class Steps:
    """The commands that run now, each with everything it started in a process group of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, bool] = {}  # process id -> whether it may be killed
        self._is_ending = False

    def run(
        self,
        command: Sequence[str | Path],
        output: IO[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        may_be_killed: bool = True,
    ) -> int:
        """The exit code of the command; Stopped if the install is being ended."""
        with self._begun(command, output, cwd, env, may_be_killed) as process:
            code = process.wait()
        if code < 0 and self._is_ending:
            raise Stopped(f"`{command[0]}` was ended")
        return code

    @contextmanager
    def _begun(
        self,
        command: Sequence[str | Path],
        output: IO[str],
        cwd: Path | None,
        env: Mapping[str, str] | None,
        may_be_killed: bool,
    ) -> Iterator[subprocess.Popen[bytes]]:
        with self._lock:
            if self._is_ending:
                raise Stopped(f"`{command[0]}` was not begun")
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running[process.pid] = may_be_killed
        try:
            yield process
        finally:
            with self._lock:
                del self._running[process.pid]

    def end(self) -> None:
        """Kill what runs, begin nothing more. Who must not be killed (apt-get, half way) comes to its end."""
        with self._lock:
            self._is_ending = True
            for pid, may_be_killed in self._running.items():
                if may_be_killed:
                    with suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)

    def reopen(self) -> None:
        """After everything that `end` ended is over."""
        self._is_ending = False


STEPS = Steps()
