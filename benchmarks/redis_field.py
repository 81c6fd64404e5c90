"""A private Redis and the processes that are measured on it, each timed from outside."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import msgspec
from msgspec import Struct
from redis import Redis
from tests.servers.redis import Redis as Server

from benchmarks.harness import Scale, scratch
from benchmarks.redis_child import Task
from benchmarks.samples import bodies

ROOT = Path(__file__).parent.parent
_MANY = 40_000
_UNCOUNTED = 20  # the first jobs of a worker that has just started
_PATIENCE = 120.0  # seconds until a process that says nothing is given up
Unsettled = Callable[[Any], int]


class Entrant(Struct, frozen=True, kw_only=True):
    """Who is measured: how its processes start, and how much it has still to settle, read from Redis."""

    name: str
    command: tuple[str, ...]
    unsettled: Unsettled
    fast: bool = False  # gets the larger number of jobs: a slow one's rate is steady long before
    tenants: int = 0


class Passage(Struct, frozen=True):
    """One entrant, once: added and handled."""

    enqueued: float  # a second
    memory: float  # bytes of Redis a pending job
    settled: float  # a second


class Size(Struct, frozen=True):
    """How many jobs."""

    count: int
    warm: int

    @classmethod
    def of(cls, scale: Scale, entrant: Entrant) -> Size:
        if scale.quick:
            return cls(200, 20)
        return cls(_MANY, 5_000) if entrant.fast else cls(4_000, 500)


class Field:
    """The Redis of one measurement: AOF, everysec, on the disk of the benchmarks, nobody else on it."""

    def __init__(self) -> None:
        self._directory = scratch() / "redis"
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir()
        self._server = Server(self._directory)
        self._orders = self._directory / "orders.ndjson"
        self._orders.write_bytes(b"\n".join(bodies(_MANY)) + b"\n")

    def __enter__(self) -> Field:
        self._server.start()
        self.redis = Redis.from_url(self.url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.redis.close()
        self._server.discard()

    @property
    def url(self) -> str:
        return self._server.url

    def passage(self, entrant: Entrant, scale: Scale, *, failing: bool = False) -> Passage:
        """From nothing: add, weigh, handle until nothing is unsettled."""
        size = Size.of(scale, entrant)
        self.redis.flushall()
        empty = self._memory()
        enqueued = size.count / self._produced(entrant, size, failing)
        memory = (self._memory() - empty) / (size.count + size.warm)
        return Passage(enqueued, memory, size.count / self._worked(entrant, size, failing))

    def waits(self, entrant: Entrant, count: int) -> list[float]:
        """Seconds from adding a job to the start of its handler, each in an idle worker."""
        self.redis.flushall()
        size = Size(count + _UNCOUNTED, 0)
        with self._child(entrant, "hear", size) as hearing, self._child(entrant, "tell", size) as telling:
            hearing.expect("ready")
            telling.expect("ready")
            telling.go()
            telling.expect("done")
            took = msgspec.json.decode(hearing.line("how long it took"), type=list[int])
            return [one / 1e9 for one in took[_UNCOUNTED:]]

    def _produced(self, entrant: Entrant, size: Size, failing: bool) -> float:
        with self._child(entrant, "produce", size, failing) as child:
            child.expect("ready")
            began = child.go()
            child.expect("done")
            return time.perf_counter() - began

    def _worked(self, entrant: Entrant, size: Size, failing: bool) -> float:
        with self._child(entrant, "work", size, failing) as child:
            child.expect("ready")
            began = child.go()
            child.expect("handled")
            while entrant.unsettled(self.redis):
                child.require_running()
                time.sleep(0.001)
            return time.perf_counter() - began

    @contextmanager
    def _child(self, entrant: Entrant, role: str, size: Size, failing: bool = False) -> Iterator[_Child]:
        task = Task(role, self.url, str(self._orders), size.count, size.warm, failing, entrant.tenants)
        child = _Child(entrant, task, self._directory / f"{role}.log")
        try:
            yield child
        finally:
            child.end()

    def _memory(self) -> int:
        """Bytes that its data take, indexes included; the least of some looks, since tables are resized meanwhile."""
        return min(self._memory_now() for _ in range(10))

    def _memory_now(self) -> int:
        time.sleep(0.05)
        info: dict[str, int] = self.redis.info("memory")
        return info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"]


class _Child:
    """One process and what it says; what it complains of goes into a log that an error quotes."""

    def __init__(self, entrant: Entrant, task: Task, log: Path) -> None:
        self._who, self._log = f"{entrant.name} ({task.role})", log
        with log.open("w") as complaints:
            self._process = subprocess.Popen(
                [*entrant.command, msgspec.json.encode(task).decode()],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        self._patience = threading.Timer(_PATIENCE, self._process.kill)
        self._patience.start()

    def go(self) -> float:
        """When it was told to."""
        assert self._process.stdin is not None
        began = time.perf_counter()
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return began

    def expect(self, word: str) -> None:
        said = self.line(word)
        if said != word:
            raise SystemExit(f"{self._who} was to say {word!r} and said {said!r}")

    def line(self, what: str) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().rstrip("\n")
        if not said:
            self._give_up(f"said {what!r}")
        return said

    def require_running(self) -> None:
        if self._process.poll() is not None:
            self._give_up("had settled everything")

    def end(self) -> None:
        self._patience.cancel()
        self._process.kill()
        self._process.communicate()

    def _give_up(self, before: str) -> NoReturn:
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(f"{self._who} ended, or was ended after {_PATIENCE:g} s, before it {before}\n{tail}")
