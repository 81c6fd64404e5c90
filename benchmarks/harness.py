"""What a cell is, how contenders are measured side by side, and the one JSON line that comes out of each."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from redrive.worker import fast_loop

T = TypeVar("T")
Numbers = dict[str, float]
_PEERS = ("huey", "persist-queue", "taskiq-redis", "dramatiq", "pgqueuer", "procrastinate")
Contender = Callable[[], float]
"""Measures itself once, from nothing, and gives its figure."""


class Scale(Struct, frozen=True, kw_only=True):
    """How much is measured. `quick` shows that a cell works; its figures mean nothing."""

    quick: bool = False
    rounds: int = 5

    def of(self, full: int, quick: int) -> int:
        """That many, or that few."""
        return quick if self.quick else full


class Target(Struct, frozen=True, kw_only=True):
    """What is asked of a cell: at least that ratio to the best peer, or at most that figure."""

    ratio: float | None = None
    most: float | None = None

    def met(self, figure: float, ratio: float | None) -> bool:
        return (self.ratio is None or (ratio is not None and ratio >= self.ratio)) and (
            self.most is None or figure <= self.most
        )


class Result(Struct, frozen=True, kw_only=True):
    """One line. `ratio` is ours to the best peer's and above 1 is better for us, whatever the unit."""

    cell: str
    redrive: float
    unit: str
    peers: Numbers
    best_peer: str | None
    ratio: float | None
    target: Target | None
    met: bool | None
    details: dict[str, Any]
    settings: dict[str, Any]
    quick: bool
    machine: dict[str, Any]
    at: datetime


class Cell(Struct, frozen=True, kw_only=True):
    """One measurement and what is asked of it."""

    name: str  # family/what
    unit: str
    measure: Callable[[Scale], Measured]
    target: Target | None = None
    less_is_better: bool = False

    def run(self, scale: Scale) -> Result:
        """Measured now, on this machine."""
        figures = self.measure(scale)
        best = self._best(figures.peers)
        ratio = None if best is None else self._ratio(figures.redrive, figures.peers[best])
        return Result(
            cell=self.name,
            redrive=rounded(figures.redrive),
            unit=self.unit,
            peers={name: rounded(figure) for name, figure in figures.peers.items()},
            best_peer=best,
            ratio=None if ratio is None else rounded(ratio),
            target=self.target,
            met=None if self.target is None else self.target.met(figures.redrive, ratio),
            details=figures.details,
            settings=figures.settings,
            quick=scale.quick,
            machine=machine(),
            at=datetime.now(UTC),
        )

    def _best(self, peers: Mapping[str, float]) -> str | None:
        if not peers:
            return None
        return (min if self.less_is_better else max)(peers, key=lambda name: peers[name])

    def _ratio(self, ours: float, theirs: float) -> float | None:
        above, below = (theirs, ours) if self.less_is_better else (ours, theirs)
        return above / below if below else None


class Measured(Struct, frozen=True, kw_only=True):
    """The figures of a cell before they are judged."""

    redrive: float
    peers: Numbers
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


def side_by_side(
    contenders: Mapping[str, Contender], rounds: int, of: Callable[[Sequence[float]], float] = statistics.median
) -> Numbers:
    """The median of each over some rounds. In a round they follow one another at once, so that a neighbour who makes
    the machine slow makes it slow for all; each round starts with another of them."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            figures[name].append(contenders[name]())
            say(f"  round {number + 1}: {name} {figures[name][-1]:,.6g}")
    return {name: of(seen) for name, seen in figures.items()}


def rate(count: int, work: Callable[[], object]) -> float:
    """How many a second."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


async def async_rate(count: int, work: Awaitable[object]) -> float:
    """How many a second."""
    began = time.perf_counter()
    await work
    return count / (time.perf_counter() - began)


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    """As `redrive run` would: uvloop where it is installed."""
    import asyncio

    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(work)


def percentiles(seconds: Sequence[float]) -> Numbers:
    """p50, p99 and the worst, in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else list(seconds) * 99
    return {"p50": rounded(cuts[49] * 1e3), "p99": rounded(cuts[98] * 1e3), "max": rounded(max(seconds) * 1e3)}


def rounded(figure: float) -> float:
    """Four digits that mean something."""
    return float(f"{figure:.4g}") if abs(figure) < 1000 else float(round(figure))


def say(text: str) -> None:
    """Progress, for people: stdout carries the lines."""
    print(text, file=sys.stderr, flush=True)


def scratch() -> Path:
    """Where databases of benchmarks lie: on a disk, outside the tree."""
    path = Path(os.environ.get("REDRIVE_BENCH_DIR", "/var/tmp/redrive-bench"))
    path.mkdir(parents=True, exist_ok=True)
    return path


@cache
def machine() -> dict[str, Any]:
    """What it ran on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()}",
        "loop": "asyncio" if fast_loop() is None else f"uvloop {version('uvloop')}",
        "load": os.getloadavg()[0],
        "fsync_us": _fsync_microseconds(),
        "peers": {name: found for name in _PEERS if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _fsync_microseconds(times: int = 50) -> int:
    """What one durable write of a page costs here: the floor under every queue that acks one by one."""
    path = scratch() / "fsync"
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(times):
            file.write(b"\0" * 4096)
            os.fdatasync(file.fileno())
        took = time.perf_counter() - began
    path.unlink()
    return round(took / times * 1e6)
