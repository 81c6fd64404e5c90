"""Who looks after a worker: the supervisor of several, systemd, or nobody."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.processes.child import Child, adopt
from redrive.processes.systemd import Systemd

if TYPE_CHECKING:
    from redrive.app import Redrive
    from redrive.worker import Worker


class Overseer:
    """Nobody: the worker is on its own."""

    wants_upkeep = True
    only_checks = False  # the worker is made, and not run

    def prepare(self, app: Redrive) -> None:
        """Before its worker is made."""

    async def watch(self, worker: Worker) -> None:
        """Beside the worker, until it is cancelled."""

    def stop(self, worker: Worker) -> None:
        """Somebody told this process to stop."""
        worker.stop()


class BySystemd(Overseer):
    """Told when the worker runs and when it stops; and that it lives, if it has a watchdog."""

    def __init__(self, systemd: Systemd) -> None:
        self._systemd = systemd

    async def watch(self, worker: Worker) -> None:
        self._systemd.ready("running")
        await self._systemd.beat()

    def stop(self, worker: Worker) -> None:
        self._systemd.stopping()
        worker.stop()


class BySupervisor(Overseer):
    """The worker is one of several: its name has a number, and only the first has the upkeep."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.wants_upkeep = child.number == 1
        self.only_checks = child.checks

    def prepare(self, app: Redrive) -> None:
        """A broker that knows workers by name knows each by its own, and who replaces a process by the same."""
        from structlog.contextvars import bind_contextvars  # for those who run

        bind_contextvars(process=self._child.number)
        if app.settings.worker:
            app.settings = replace(app.settings, worker=f"{app.settings.worker}-{self._child.number}")

    async def watch(self, worker: Worker) -> None:
        with contextlib.suppress(ConnectionError):
            await self._child.serve(worker.grace.total_seconds(), worker.stop)


def overseer() -> Overseer:
    """The one of this process."""
    if (child := adopt()) is not None:
        return BySupervisor(child)
    systemd = Systemd.found()
    return Overseer() if systemd is None else BySystemd(systemd)
