"""sd_notify: tell systemd that the service is ready, stops, and lives. One datagram each, and no library for it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping
from datetime import timedelta

log = logging.getLogger("redrive")
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What systemd says to its own process, and to none that this one starts."""


class Systemd:
    """The service manager that started this process with `Type=notify`."""

    def __init__(self, address: str, watchdog: timedelta | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address  # @ is an abstract socket
        self.watchdog = watchdog

    @classmethod
    def found(cls, environ: Mapping[str, str] = os.environ) -> Systemd | None:
        """The one that the environment names; None, if there is none."""
        address = environ.get("NOTIFY_SOCKET", "")
        return cls(address, _watchdog(environ)) if address.startswith(("/", "@")) else None

    def ready(self, status: str) -> None:
        self.tell(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        self.tell(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self.tell("STOPPING=1\nSTATUS=stopping: what is being handled may finish")

    def tell(self, state: str) -> None:
        """Send it. A manager that does not listen is no reason to stop."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("systemd was not told %s: %s", state.partition("\n")[0], error)

    async def beat(self) -> None:
        """Tell that we live, twice as often as the watchdog asks; until it is cancelled."""
        while self.watchdog is not None:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog.total_seconds() / 2)


def _watchdog(environ: Mapping[str, str]) -> timedelta | None:
    """WatchdogSec of the unit, if it is meant for this process."""
    micros, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not micros.isdigit() or not int(micros) or pid not in ("", str(os.getpid())):
        return None
    return timedelta(microseconds=int(micros))
