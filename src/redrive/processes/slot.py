"""Keeps the process of one number running: what dies is started again, after a pause that grows, until a limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum

from msgspec import Struct

from redrive.clock import Clock
from redrive.processes.causes import WRONG, cause, out_of_memory_kills
from redrive.processes.merge import Family, lasting, merged, unpacked
from redrive.processes.process import Process
from redrive.processes.restarts import Restarts
from redrive.telemetry.events import Events, ProcessDied, ProcessStarted

log = logging.getLogger("redrive")


class Wanted(Enum):
    """What the process of a slot is to do. Only one that ends while it is to run has died."""

    RUN = "run"
    RENEW = "renew"  # end, and be started again: as it was told
    STOP = "stop"


class GaveUp(Exception):
    """A process died too often, or can never start; `code` is what the whole ends with."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code if code > 0 else 1


class End(Struct, frozen=True):
    """How a process ended."""

    pid: int
    code: int
    lived: float  # seconds
    had_started: bool
    cause: str
    is_clean: bool  # as one that was told to stop should


class Slot:
    """One number, and whichever process has it now."""

    def __init__(
        self,
        number: int,
        start: Callable[[int], Awaitable[Process]],
        restarts: Restarts,
        events: Events,
        clock: Clock,
        *,
        waits_for_changes: bool = False,
    ) -> None:
        self.number = number
        self.process: Process | None = None
        self.times_started = 0
        self.retired: list[Family] = []  # what its dead processes had counted
        self.up = asyncio.Event()
        self.ended_cleanly = True
        self._start = start
        self._restarts = restarts
        self._events = events
        self._clock = clock
        self._waits_for_changes = waits_for_changes
        self._wanted = Wanted.RUN
        self._wake = asyncio.Event()
        self._is_first = True

    async def keep(self) -> None:
        """Until `stop`. Raises GaveUp if that makes no sense any more."""
        while self._wanted is not Wanted.STOP:
            self._wanted = Wanted.RUN
            self._wake.clear()
            end = await self._live()
            self.ended_cleanly = end.is_clean or self._wanted is not Wanted.STOP
            if self._wanted is Wanted.RUN:
                await self._after(end)

    @property
    def times_restarted(self) -> int:
        return max(self.times_started - 1, 0)

    def stop(self) -> None:
        self._want(Wanted.STOP)

    async def renew(self) -> None:
        """Replace its process by a new one; returns when that runs."""
        self.up.clear()
        self._restarts.forget()
        self._want(Wanted.RENEW)
        await self.up.wait()

    def _want(self, wanted: Wanted) -> None:
        if self._wanted is Wanted.STOP:  # for good
            return
        self._wanted = wanted
        self._wake.set()
        if self.process is not None:
            self.process.stop()

    # -- one life ------------------------------------------------------------------------------------------------------

    async def _live(self) -> End:
        """Start a process, and wait for its end."""
        began, killed = self._clock.elapsed(), out_of_memory_kills()
        try:
            process = self.process = await self._start(self.number)
        except OSError as error:
            return End(0, 1, 0.0, False, f"it cannot be started: {error}", False)
        if self._wanted is not Wanted.RUN:  # told meanwhile
            process.stop()
        greeting = asyncio.create_task(self._greet(process))
        try:
            code = await process.ended()
        finally:
            greeting.cancel()
            self.up.clear()
            self.process = None
        self.retired = merged([self.retired, lasting(unpacked(process.counted))])
        told = code == 0 or not process.started.is_set()
        text = cause(code, out_of_memory=out_of_memory_kills() > killed)
        if process.is_overdue:
            log.error("process %d did not stop within its grace, and was killed", self.number)
        lived = self._clock.elapsed() - began
        return End(process.pid, code, lived, process.started.is_set(), text, told and not process.is_overdue)

    async def _greet(self, process: Process) -> None:
        await process.started.wait()
        self.times_started += 1
        self.up.set()
        self._events.emit(ProcessStarted(process=self.number, pid=process.pid))

    async def _after(self, end: End) -> None:
        """It died: pause, wait for other code, or give up."""
        is_first, self._is_first = self._is_first, False
        if self._waits_for_changes and (end.code == WRONG or not end.had_started):
            await self._until_changed(end)
            return
        if end.code == WRONG and is_first:
            raise GaveUp(WRONG)  # it has said why itself
        pause = self._restarts.died(self._clock.elapsed(), end.lived)
        self._events.emit(
            ProcessDied(
                process=self.number,
                pid=end.pid,
                cause=end.cause,
                lived=timedelta(seconds=end.lived),
                pause=None if pause is None else timedelta(seconds=pause),
            )
        )
        if pause is not None:
            await self._clock.wait(self._wake, pause)
        elif self._waits_for_changes:
            await self._until_changed(end)
        else:
            log.error("process %d died too often: giving up, the others are stopped", self.number)
            raise GaveUp(end.code)

    async def _until_changed(self, end: End) -> None:
        log.warning("process %d waits for a change of the files (%s)", self.number, end.cause)
        await self._wake.wait()
