"""One supervisor, N workers: starts them, keeps them running, stops them together, and serves one view of all.

It never imports the user's code. The first process is started alone: if it cannot start, that is said once, by it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from redrive.clock import Clock, SystemClock
from redrive.config.settings import Processes
from redrive.processes.changes import changes
from redrive.processes.process import MARGIN, Process
from redrive.processes.restarts import Restarts
from redrive.processes.slot import GaveUp, Slot
from redrive.processes.systemd import Systemd
from redrive.telemetry.events import Events

log = logging.getLogger("redrive")
Helper: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Supervisor:
    """Runs `command` as many times as it is told, each as a process with a number."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        rule: Processes,
        events: Events,
        *,
        clock: Clock | None = None,
        systemd: Systemd | None = None,
        watched: Path | None = None,
        margin: timedelta = MARGIN,
    ) -> None:
        self._command = command
        self._systemd = systemd
        self._margin = margin
        self._watched = watched  # whose files start them again when they are edited
        self.beside: list[Helper] = []  # runs until all have ended
        self._stopped = asyncio.Event()
        self._reloading: asyncio.Task[None] | None = None
        clock = clock or SystemClock()
        self.slots = [
            Slot(number, self._started, Restarts(rule), events, clock, waits_for_changes=watched is not None)
            for number in range(1, count + 1)
        ]

    async def run(self) -> int:
        """Until `stop`, or until it gives up; the exit code of the whole."""
        helpers = [asyncio.create_task(_logged(helper)) for helper in self._helpers()]
        keepers: list[asyncio.Task[None]] = []
        try:
            await self._start_all(keepers)
            await asyncio.wait(keepers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.stop()
            if self._reloading is not None:
                self._reloading.cancel()
            ends = await asyncio.gather(*keepers, return_exceptions=True)
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        return self._code(ends)

    def stop(self) -> None:
        """Let all of them finish what they handle, within their grace."""
        if not self._stopped.is_set() and self._systemd is not None:
            self._systemd.stopping()
        self._stopped.set()
        for slot in self.slots:
            slot.stop()

    def kill(self) -> None:
        """End all of them at once."""
        for process in self.processes:
            process.kill()

    def reload(self) -> None:
        """Replace the processes one after the other, if the code that lies there now can be started at all."""
        if self._stopped.is_set():
            return
        if self._reloading is not None and not self._reloading.done():
            log.warning("a reload is under way already")
            return
        self._reloading = asyncio.create_task(self._reload())

    @property
    def processes(self) -> list[Process]:
        """Those that there are now."""
        return [slot.process for slot in self.slots if slot.process is not None]

    # -- starting ------------------------------------------------------------------------------------------------------

    async def _started(self, number: int) -> Process:
        return await Process.start(self._command, number, margin=self._margin)

    async def _start_all(self, keepers: list[asyncio.Task[None]]) -> None:
        """The first alone, then all others at once. Returns early if the first one ends for good."""
        first = self.slots[0]
        keepers.append(asyncio.create_task(first.keep()))
        up = asyncio.create_task(first.up.wait())
        await asyncio.wait([keepers[0], up], return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if not keepers[0].done():
            keepers += [asyncio.create_task(slot.keep()) for slot in self.slots[1:]]

    def _helpers(self) -> list[Helper]:
        helpers = list(self.beside)
        if self._watched is not None:
            helpers.append(partial(self._follow_changes, self._watched))
        if (systemd := self._systemd) is not None:
            helpers += [partial(self._tell_ready, systemd), systemd.beat]
            if systemd.watchdog is not None:
                helpers.append(partial(self._end_silent, systemd.watchdog))
        return helpers

    async def _tell_ready(self, systemd: Systemd) -> None:
        for slot in self.slots:
            await slot.up.wait()
        systemd.ready(self._status())

    def _status(self) -> str:
        up = sum(slot.up.is_set() for slot in self.slots)
        return f"{up} of {len(self.slots)} processes run"

    async def _end_silent(self, span: timedelta) -> None:
        """The watchdog of systemd sees the supervisor only, so the supervisor is that of its processes."""
        while True:
            await asyncio.sleep(span.total_seconds() / 2)
            now = asyncio.get_running_loop().time()
            for process in self.processes:
                if process.started.is_set() and now - process.heard > span.total_seconds():
                    log.error("process %d has said nothing for %.0f s: ending it", process.number, now - process.heard)
                    process.signal(signal.SIGABRT)

    # -- loading anew --------------------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        if self._systemd is not None:
            self._systemd.reloading()
        if await self._can_start():
            await self._renew_all()
            log.info("reloaded")
        else:
            log.error("not reloaded: the app cannot be started as it is now; the processes go on with what they have")
        if self._systemd is not None:
            self._systemd.ready(self._status())

    async def _can_start(self) -> bool:
        try:
            process = await Process.start(self._command, 0, checks=True)
        except OSError as error:
            log.error("no process can be started: %s", error)
            return False
        return await process.ended() == 0

    async def _renew_all(self) -> None:
        for slot in self.slots:
            await slot.renew()

    async def _follow_changes(self, place: Path) -> None:
        """Renew at each change; what is not done with the last one is left for the new one."""
        renewing: asyncio.Task[None] | None = None
        async for edited in changes(place):
            if renewing is not None:
                renewing.cancel()
            shown = ", ".join(edited[:3]) + (f" and {len(edited) - 3} more" if len(edited) > 3 else "")
            log.info("changed: %s; starting again", shown)
            renewing = asyncio.create_task(self._renew_all())

    def _code(self, ends: Sequence[BaseException | None]) -> int:
        for end in ends:
            if isinstance(end, GaveUp):
                return end.code
            if end is not None:
                raise end
        return 0 if all(slot.ended_cleanly for slot in self.slots) else 1


async def _logged(helper: Helper) -> None:
    """What fails beside the processes is said, and does not end them."""
    try:
        await helper()
    except Exception:
        log.exception("a helper of the supervisor failed; the processes go on without it")


def command_of(arguments: Sequence[str]) -> list[str]:
    """`redrive` with these arguments, on this Python; a file of the current directory cannot stand in for it (-P)."""
    return [sys.executable, "-P", "-m", "redrive", *arguments]


def listen_to_signals(supervisor: Supervisor) -> None:
    """SIGTERM and Ctrl-C stop all, the second one at once; SIGHUP reloads, unless it means that the terminal went."""
    from redrive.worker import stop_on_signals

    stop_on_signals(supervisor.stop, supervisor.kill)
    hangs_up = supervisor.stop if os.isatty(0) else supervisor.reload
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangs_up)
