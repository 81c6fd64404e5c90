"""Threads for sync handlers: used again and again, and written off when one hangs.

An executor of a fixed size would not do: Python cannot end a thread, so each handler that hangs would take one
away for good, until no message at all is handled; and its threads keep a process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias

Job: TypeAlias = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
Jobs: TypeAlias = "SimpleQueue[Job | None]"
"""The queue that one thread takes its jobs from."""


class Threads:
    """A pool with as many threads as are busy at once. A job that nobody waits for keeps its thread until it ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[Jobs] = []
        self._closed = False

    async def run(self, call: Callable[[], Any]) -> Any:
        """Run the call in a thread; returns or raises what it does, without holding up the loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        jobs = self._idle.pop() if self._idle else self._start_thread()
        jobs.put((loop, future, call))
        return await future

    def close(self) -> None:
        """End idle threads now, busy ones when they are done; none of them keeps the process."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _start_thread(self) -> Jobs:
        jobs: Jobs = SimpleQueue()
        threading.Thread(target=self._work, args=(jobs,), name=self._name, daemon=True).start()
        return jobs

    def _work(self, jobs: Jobs) -> None:
        while (job := jobs.get()) is not None:
            loop, future, call = job
            result, error = _outcome(call)
            if not self._closed:
                self._idle.append(jobs)
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_answer, future, result, error)
            if self._closed:
                return
            del job, future, call, result, error  # an idle thread keeps nothing alive


class InThisThread(Threads):
    """No thread at all: the call runs where it is awaited, and holds up the loop."""

    async def run(self, call: Callable[[], Any]) -> Any:
        return call()


def _outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except StopIteration as error:  # a future cannot carry it
        failed = RuntimeError("the handler raised StopIteration")
        failed.__cause__ = error
        return None, failed
    except BaseException as error:
        return None, error


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if not future.done():
        future.set_result(result) if error is None else future.set_exception(error)
