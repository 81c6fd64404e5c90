"""`redrive run --processes` as a user starts it: its log read line by line, its processes by their ids."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from redrive.app import Redrive
from redrive.config.settings import Settings
from redrive.worker import run_on_fast_loop
from tests.servers.waiting import wait_until

SOON = timedelta(minutes=5)  # the patience of a wait that ends as soon as it may, on a machine with much else to do
Line = dict[str, Any]
SHOP = """
import os, time
from pathlib import Path
from redrive import Redrive

VERSION = 1
app = Redrive()

@app.handler("orders")
async def charge(order: dict) -> None:
    with open("handled", "a") as file:
        file.write(f"{order['id']} {os.getpid()}\\n")

@app.handler("slow")
def wait(order: dict) -> None:
    Path(f"begun-{order['id']}").write_text(str(os.getpid()))
    while not Path("go").exists():
        time.sleep(0.01)
    Path(f"ended-{order['id']}").touch()
"""


class Run:
    """One `redrive …` that runs. What it logs as JSON can be waited for."""

    def __init__(self, place: Path, *words: str, **environ: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        quick = {"REDRIVE_PROCESSES_PAUSE": "10ms", "REDRIVE_PROCESSES_LONGEST_PAUSE": "50ms"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "redrive", *words],
            cwd=place,
            env=inherited | quick | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[Line] = []
        self.other = ""  # what is no line of a log: errors of the command itself
        self.said = ""
        self._readers = [threading.Thread(target=self._read_log), threading.Thread(target=self._read_words)]
        for reader in self._readers:
            reader.start()

    def _read_log(self) -> None:
        for text in self.process.stderr or ():
            try:
                self.lines.append(json.loads(text))
            except ValueError:
                self.other += text

    def _read_words(self) -> None:
        for text in self.process.stdout or ():
            self.said += text

    def seen(self, event: str, **fields: Any) -> list[Line]:
        """Lines whose event has that text, and that have these fields."""
        wanted = fields.items()
        return [line for line in list(self.lines) if event in line["event"] and wanted <= line.items()]

    def wait(self, event: str, times: int = 1, **fields: Any) -> Line:
        """Until it was logged so often; the last of them."""
        wait_until(lambda: len(self.seen(event, **fields)) >= times or self._is_over(), f"{event} {fields}", SOON)
        found = self.seen(event, **fields)
        assert len(found) >= times, (event, self.lines, self.other)
        return found[-1]

    def _is_over(self) -> bool:
        return self.process.poll() is not None and not any(reader.is_alive() for reader in self._readers)

    def pids(self, count: int) -> list[int]:
        """Of the processes that were started first, by their numbers."""
        return [self.wait("process_started", process=number)["pid"] for number in range(1, count + 1)]

    @property
    def url(self) -> str:
        wait_until(lambda: "/metrics\n" in self.said or self._is_over(), "the address of the metrics", SOON)
        return self.said.split()[-1].removesuffix("/metrics")

    def scraped(self) -> dict[str, float]:
        """Every sample that it serves, by its name and labels."""
        text = fetched(f"{self.url}/metrics")
        pairs = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in pairs}

    def end(self, *signals: int) -> int:
        """Its exit code, after these signals."""
        for number in signals:
            self.process.send_signal(number)
        code = self.process.wait(SOON.total_seconds())
        for reader in self._readers:
            reader.join(SOON.total_seconds())
        return code

    def close(self) -> None:
        """Whatever its test did, nothing of it goes on."""
        self.process.kill()
        self.process.wait()
        for line in self.seen("process_started"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(line["pid"], signal.SIGKILL)
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def fetched(url: str, token: str = "") -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=SOON.total_seconds()) as answer:
        return str(answer.read().decode())


def send(place: Path, source: str, *ids: int) -> None:
    """Orders with these ids, into the file that the shop uses."""
    url = f"sqlite:///{place / 'redrive.db'}"

    async def sent() -> None:
        async with Redrive(settings=Settings(store=url, transports={"default": url})) as app:
            await app.send_messages([app.message(source, {"id": id}, id=f"{source}-{id}") for id in ids])

    run_on_fast_loop(sent())


def handled(place: Path) -> dict[int, list[int]]:
    """The processes that handled each order."""
    found: dict[int, list[int]] = {}
    file = place / "handled"
    for line in file.read_text().splitlines() if file.exists() else ():
        id, pid = line.split()
        found.setdefault(int(id), []).append(int(pid))
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs; what has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Manager:
    """What systemd is to a service: a datagram socket that it is told things on."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(SOON.total_seconds())

    def told(self, until: Callable[[str], bool]) -> list[str]:
        """Everything up to the one that is waited for."""
        found = [self._socket.recv(4096).decode()]
        while not until(found[-1]):
            found.append(self._socket.recv(4096).decode())
        return found

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def manager(path: Path) -> Iterator[Manager]:
    made = Manager(path)
    try:
        yield made
    finally:
        made.close()
