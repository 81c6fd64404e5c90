"""`redrive run --processes` with the worker of the accounts; its processes can be killed one by one.

redrive run benchmarks.accounts.supervised:app --processes 2       what each process runs, told by ACCOUNTS_ORDERS
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from random import Random

import msgspec
from msgspec.structs import replace

from benchmarks.accounts.orders import LIVES, Orders
from benchmarks.accounts.worker import app_of
from redrive import Redrive

_ORDERS = "ACCOUNTS_ORDERS"
_ROOT = Path(__file__).parents[2]


def __getattr__(name: str) -> Redrive:
    """`app`, made when it is asked for: in a process that was told its orders."""
    if name != "app":
        raise AttributeError(name)
    orders = msgspec.json.decode(os.environ[_ORDERS], type=Orders)
    return app_of(replace(orders, life=os.getpid() % LIVES))


class Supervised:
    """A supervisor, and which processes it says that it has."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.died: list[str] = []  # of what
        self._pids: dict[int, int] = {}
        self._changed = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def started(cls, orders: Orders, processes: int) -> Supervised:
        told = {_ORDERS: msgspec.json.encode(orders).decode(), "REDRIVE_LOGS_FORMAT": "json"}
        calm = {"REDRIVE_PROCESSES_DEATHS": "none", "REDRIVE_PROCESSES_LONGEST_PAUSE": "500ms"}
        words = ("run", f"{__name__}:app", "--processes", str(processes))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "redrive", *words),
            cwd=_ROOT,
            env=os.environ | told | calm,
            stderr=asyncio.subprocess.PIPE,
        )
        made = cls(process)
        await made.until_running(processes)
        return made

    async def until_running(self, count: int) -> None:
        """Until so many have said that they run."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._pids) == count or self._reading.done())
        if self._reading.done():
            raise SystemExit(f"the supervisor ended by itself with {self.process.returncode}")

    async def kill_any(self, rng: Random) -> None:
        """Kill one of them; returns when another has its place."""
        number = rng.choice(sorted(self._pids))
        count, pid = len(self._pids), self._pids[number]
        os.kill(pid, signal.SIGKILL)
        async with self._changed:
            await self._changed.wait_for(lambda: self._pids.get(number) != pid or self._reading.done())
        await self.until_running(count)

    async def end(self) -> int:
        """The exit code of a clean end."""
        self.process.terminate()
        code = await self.process.wait()
        await self._reading
        return code

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for text in self.process.stderr:
            line = json.loads(text) if text.startswith(b"{") else {"event": text.decode()}
            async with self._changed:
                self._note(line)
                self._changed.notify_all()

    def _note(self, line: dict[str, object]) -> None:
        match line:
            case {"event": "process_started", "process": int(number), "pid": int(pid)}:
                self._pids[number] = pid
            case {"event": "process_died", "process": int(number), "cause": str(cause)}:
                self._pids.pop(number, None)
                self.died.append(cause)
