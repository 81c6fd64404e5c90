"""Where a courier runs: in a thread of the worker, or in a process beside it.

A thread costs least. Where gevent or eventlet have replaced what threads are made of, an event loop in one of them
would block the worker, or be blocked by it: there the courier is a process, which ends with its worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from redrive.integrations.courier import Courier
from redrive.integrations.spool import Spool
from redrive.registry import open_store

log = logging.getLogger("redrive")


class Host(Protocol):
    """Runs a courier."""

    def wake(self) -> None:
        """There is something to deliver."""
        ...

    def end(self, timeout: float) -> None:
        """Let it deliver what waits, for at most so many seconds; the rest stays on disk."""
        ...


class InThread:
    """A courier in a daemon thread, with an event loop of its own."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        self._courier: Courier | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="redrive-courier", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._tell("wake")

    def end(self, timeout: float) -> None:
        self._is_ending = True
        self._tell("end")
        self._thread.join(timeout)

    def _tell(self, what: str) -> None:
        loop, courier = self._loop, self._courier
        if loop is not None and courier is not None:  # otherwise it looks at the directory first of all
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(getattr(courier, what))

    def _run(self) -> None:
        try:
            asyncio.run(self._deliver())
        except Exception:
            log.exception("no letters are delivered from %s by this process any more", self._directory)

    async def _deliver(self) -> None:
        courier = Courier(Spool(self._directory), lambda: open_store(self._url))
        self._loop, self._courier = asyncio.get_running_loop(), courier
        if self._is_ending:  # told before there was anybody to tell
            courier.end()
        await courier.run()


class InProcess:
    """A courier in a process that ends with this one. It looks into the directory by itself."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        self._process = self._start()

    def wake(self) -> None:
        """It looks by itself. If somebody has killed it, another takes its place."""
        if self._process.poll() is not None:
            log.warning("the courier of %s has ended: another is started", self._directory)
            self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "redrive.integrations.courier", str(self._directory)],
            stdin=subprocess.PIPE,
            env={**os.environ, "REDRIVE_STORE": self._url},
            start_new_session=True,  # a Ctrl-C is for the worker, and the worker tells it
        )

    def end(self, timeout: float) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)


def started(directory: Path, url: str, apart: bool = False) -> Host:
    """A courier for that directory and that store, running; in a process of its own, if it has to be `apart`."""
    return InProcess(directory, url) if apart or _threads_are_patched() else InThread(directory, url)


def _threads_are_patched() -> bool:
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        return True
    return eventlet is not None and eventlet.is_monkey_patched("thread")
