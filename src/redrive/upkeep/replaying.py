"""Runs replays that nobody runs, each in a task of its own: one whose broker is away holds up no other."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from redrive.clock import Clock
from redrive.errors import Unavailable
from redrive.flow.replay import Replays
from redrive.model import Owner
from redrive.telemetry.events import BackendDown, Events
from redrive.upkeep.rescue import abandoned_replays

MOST = 32
"""Replays that are under way here at once. One that only waits is not under way (`Replay.again_at`)."""
_AGAIN = timedelta(seconds=5)
log = logging.getLogger("redrive")


class Replaying:
    """One task for each replay that this process runs."""

    def __init__(self, replays: Replays, events: Events, clock: Clock, *, owner: Owner) -> None:
        self._replays = replays
        self._events = events
        self._clock = clock
        self._owner = owner
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self) -> None:
        """Begin to run the replays that nobody runs, the oldest first. One that we could not let go of, because the
        store was away, is still ours: it need not wait until our hold on it lapses."""
        for replay in reversed(await abandoned_replays(self._replays, self._clock, owner=self._owner)):
            if len(self._tasks) < MOST and replay not in self._tasks:
                self._tasks[replay] = asyncio.create_task(self._run(replay))

    async def aclose(self) -> None:
        """Stop running them; another process, or the next start, goes on with them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, replay: str) -> None:
        try:
            await self._replays.run(replay, runner=self._owner)
        except Unavailable as error:
            self._events.emit(BackendDown(backend=error.name, why=str(error), pause=_AGAIN))
        except Exception:  # one that fails must not end the others
            log.exception("replay %s failed, and is run again in %s", replay, _AGAIN)
        finally:
            del self._tasks[replay]
