"""`redrive run --processes 2` beside `redrive run`, with a handler that costs 1 ms of CPU; what the supervisor costs.

Timed from outside: from when every process holds messages and may begin, to the last one handled. Two processes need
two cores, and the broker a little of them. Where neighbours use them too, the rates say little; `details` has what a
message costs of CPU with two processes and with one, which neighbours do not change.
"""

from __future__ import annotations

import atexit
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

from benchmarks.harness import Cell, Measured, Scale, Target, in_loop, rounded, scratch, side_by_side
from benchmarks.processes_app import GO, HANDLED, HOLDS, PLACE, SOURCE
from redrive import Redrive

_ROOT = Path(__file__).parents[2]
_PARTITIONS, _BULK = 6, 500
_PATIENCE = 300.0  # seconds without the answer that is waited for
_SCRAPE_EVERY = 5.0  # seconds: three times as often as Prometheus does by itself
_numbers = count(1)
Broker = Callable[[], str]


# -- the cells ---------------------------------------------------------------------------------------------------------


def redis(scale: Scale) -> Measured:
    """On Redis, two processes beside one."""
    return _measured(scale, _redis)


def rabbitmq(scale: Scale) -> Measured:
    """On RabbitMQ."""
    return _measured(scale, _rabbitmq)


def kafka(scale: Scale) -> Measured:
    """On Kafka, whose six partitions they share."""
    return _measured(scale, _kafka)


def supervisor(scale: Scale) -> Measured:
    """The share of a core that the supervisor takes of two busy processes, while it is scraped."""
    total, shares = scale.of(20_000, 400), list[float]()
    figures = side_by_side({"redrive": lambda: _share(total, shares)}, scale.rounds)
    return Measured(
        redrive=figures["redrive"],
        peers={},
        details={"rounds": [rounded(share) for share in shares]},
        settings={"messages": total, "processes": 2, "scraped_every_s": _SCRAPE_EVERY},
    )


# -- measuring ---------------------------------------------------------------------------------------------------------


def _measured(scale: Scale, broker: Broker) -> Measured:
    total = scale.of(6_000, 200)
    costs: dict[int, list[float]] = {0: [], 2: []}

    def rate(processes: int) -> float:
        with _Run(broker(), processes, total) as run:
            before = run.workers_cpu_seconds()
            took = run.drained()
            costs[processes].append(1000 * (run.workers_cpu_seconds() - before) / total)
        return total / took

    figures = side_by_side({"redrive": lambda: rate(2), "one process": lambda: rate(0)}, scale.rounds)
    cpu = {f"cpu_ms_each, {name}": rounded(statistics.median(costs[key])) for key, name in ((2, "two"), (0, "one"))}
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        details={**cpu, "load": rounded(os.getloadavg()[0])},
        settings={"messages": total, "processes": 2, "handler_cpu_ms": 1, "concurrency": 10},
    )


def _share(total: int, shares: list[float]) -> float:
    with _Run(_redis(), 2, total, "--metrics-port", "0") as run:
        before = run.cpu_seconds()
        took = run.drained(scraping=True)
        shares.append(100 * (run.cpu_seconds() - before) / took)
    return shares[-1]


class _Run:
    """`redrive run` on that broker, with a source of its own, until every process of it holds some of its messages."""

    def __init__(self, url: str, processes: int, total: int, *words: str) -> None:
        self._directory = tempfile.TemporaryDirectory(dir=scratch())
        self._place, source = Path(self._directory.name), f"bench-{next(_numbers)}"
        self._total = total
        _make_topic(url, source)
        in_loop(_send(url, source, total))
        several = ("--processes", str(processes)) if processes else ()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "run", "benchmarks.processes_app:app", *several, *words],
            cwd=_ROOT,
            env=os.environ
            | {SOURCE: source, PLACE: self._directory.name, "REDRIVE_LOGS_LEVEL": "error"}
            | {"REDRIVE_TRANSPORTS_DEFAULT": url, "REDRIVE_STORE": f"sqlite:///{self._place}/letters.db"},
            stdout=subprocess.PIPE,
        )
        self._until(lambda: len(list(self._place.glob(HOLDS))) >= max(processes, 1))

    def __enter__(self) -> _Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()
        self._directory.cleanup()

    def drained(self, *, scraping: bool = False) -> float:
        """Let them go; how many seconds it takes until everything is handled."""
        began = time.perf_counter()
        self._place.joinpath(GO).touch()
        handled, scrape = self._place / HANDLED, self._scraper() if scraping else lambda: None
        self._until(lambda: handled.stat().st_size >= self._total, scrape)
        return time.perf_counter() - began

    def cpu_seconds(self) -> float:
        """Of the process that was started, without its children."""
        return _cpu_seconds(self._process.pid)

    def workers_cpu_seconds(self) -> float:
        """Of those that handle messages."""
        return sum(_cpu_seconds(int(file.name.partition("-")[2])) for file in self._place.glob(HOLDS))

    def _until(self, condition: Callable[[], bool], beside: Callable[[], None] = lambda: None) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"`redrive run` came to nothing: exit code {self._process.poll()}")
            beside()
            time.sleep(0.005)

    def _scraper(self) -> Callable[[], None]:
        assert self._process.stdout is not None
        address, at = self._process.stdout.readline().decode().split()[-1], time.monotonic()

        def scrape() -> None:
            nonlocal at
            if time.monotonic() > at:
                urllib.request.urlopen(address).read()
                at += _SCRAPE_EVERY

        return scrape


def _cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


async def _send(url: str, source: str, total: int) -> None:
    async with Redrive(transport=url, store="memory://") as app:
        for start in range(0, total, _BULK):
            numbers = range(start, min(start + _BULK, total))
            await app.send_messages([app.message(source, b"x" * 300, key=f"key-{n % 1000}") for n in numbers])


# -- the brokers -------------------------------------------------------------------------------------------------------


@cache
def _servers(kind: Callable[[], Any]) -> Any:
    server = kind().start()
    atexit.register(server.discard)
    return server


def _redis() -> str:
    return str(_servers(Redis).url)


def _rabbitmq() -> str:
    return f"{_servers(RabbitMQ).url}%2F"


def _kafka() -> str:
    return f"kafka://{_servers(Kafka).bootstrap}/?group=bench-{next(_numbers)}"


def _make_topic(url: str, name: str) -> None:
    if url.startswith("kafka://"):
        admin: Any = AdminClient({"bootstrap.servers": _servers(Kafka).bootstrap})
        admin.create_topics([NewTopic(name, _PARTITIONS)])[name].result()


CELLS = (
    Cell(name="processes/redis", unit="messages/s", measure=redis, target=Target(ratio=1.7)),
    Cell(name="processes/rabbitmq", unit="messages/s", measure=rabbitmq, target=Target(ratio=1.7)),
    Cell(name="processes/kafka", unit="messages/s", measure=kafka, target=Target(ratio=1.7)),
    Cell(
        name="processes/supervisor", unit="% of a core", measure=supervisor, target=Target(most=1), less_is_better=True
    ),
)
