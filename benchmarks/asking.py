"""A server in a process of its own, asked one request after the other: how long each takes, and what it costs there."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from benchmarks.console_server import Listening
from benchmarks.harness import Numbers, percentiles


class Asked(Struct, frozen=True):
    """Requests of one kind: seconds of each, CPU of the server for one, and what was answered last."""

    seconds: list[float]
    cpu: float  # seconds, for each
    answer: bytes

    @property
    def figures(self) -> Numbers:
        """In milliseconds."""
        return {**percentiles(self.seconds), "cpu": round(self.cpu * 1e3, 3), "bytes": len(self.answer)}


class Served:
    """The server of console_server.py on a file."""

    def __init__(self, child: subprocess.Popen[bytes], listening: Listening) -> None:
        self.listening = listening
        self.pid = child.pid
        self._at = urlsplit(listening.url).netloc

    def cpu(self) -> float:
        """Seconds that its threads have worked, as the kernel's scheduler counts them."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def ask(self, path: Callable[[int], str], times: int, *, token: str | None = None) -> Asked:
        """So many requests over one connection, after some to warm up; `path` makes the path of each number."""
        connection = http.client.HTTPConnection(self._at)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        took, warm, began = list[float](), max(times // 10, 2), 0.0
        answer = b""
        for number in range(-warm, times):
            if number == 0:
                began = self.cpu()
            start = time.perf_counter()
            connection.request("GET", path(number), headers=headers)
            response = connection.getresponse()
            answer = response.read()
            took.append(time.perf_counter() - start)
            if response.status != 200:
                raise RuntimeError(f"{path(number)} answered {response.status}: {answer[:200]!r}")
        spent = self.cpu() - began
        connection.close()
        return Asked(took[warm:], spent / times, answer)

    def get(self, path: str) -> bytes:
        """One answer."""
        return self.ask(lambda number: path, 1, token=self.listening.admin).answer


@contextmanager
def served(path: Path) -> Iterator[Served]:
    """The server, which ends afterwards."""
    command: Sequence[str] = [sys.executable, "-m", "benchmarks.console_server", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            yield Served(child, msgspec.json.decode(child.stdout.readline(), type=Listening))
        finally:
            child.communicate()
