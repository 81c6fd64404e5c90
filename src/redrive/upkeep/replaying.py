"""Runs replays that nobody runs, each in a task of its own: one whose broker is away holds up no other.

Clocks of two servers may be apart. So a hold that has lapsed by our clock is not enough: if it lapsed not long ago, we
take the replay over when we have seen nobody renew it for as long as a hold lasts, by our own count of seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from redrive.clock import Clock
from redrive.errors import Unavailable
from redrive.flow.replay import LEASE, Replay, Replays, ReplayState
from redrive.model import Owner
from redrive.telemetry.events import BackendDown, Events
from redrive.upkeep.rescue import abandoned

MOST = 32
"""Replays that are under way here at once. One that only waits is not under way (`Replay.again_at`)."""
_AGAIN = timedelta(seconds=5)
APART = timedelta(minutes=10)
"""So far may the clocks of two servers be apart. A hold that lapsed longer ago is nobody's."""
UNFROZEN = timedelta(hours=2)
"""Whoever freezes a selection in person takes no longer than that."""
Hold: TypeAlias = tuple[str | None, datetime | None]
log = logging.getLogger("redrive")


class Replaying:
    """One task for each replay that this process runs."""

    def __init__(self, replays: Replays, events: Events, clock: Clock, *, owner: Owner) -> None:
        self._replays = replays
        self._events = events
        self._clock = clock
        self._owner = owner
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, tuple[Hold, float]] = {}  # the holds of others, and since when we know each

    async def begin(self) -> None:
        """Begin to run the replays that nobody runs, the oldest first. One that we could not let go of, because the
        store was away, is still ours: it need not wait until our hold on it lapses."""
        replays = await self._replays.open()
        self._watch(replays)
        await self._cancel_unfrozen(replays)
        for replay in reversed(abandoned(replays, self._clock.now(), owner=self._owner)):
            if len(self._tasks) < MOST and replay.id not in self._tasks and self._is_nobodys(replay):
                self._tasks[replay.id] = asyncio.create_task(self._run(replay.id))

    async def _cancel_unfrozen(self, replays: Sequence[Replay]) -> None:
        """Cancel what somebody began to freeze, and has died with: nothing of it was ever sent."""
        for replay in replays:
            is_theirs = replay.state is ReplayState.FREEZING and replay.selects is None
            if is_theirs and self._clock.now() - replay.created_at > UNFROZEN:
                await self._replays.cancel(replay.id, actor="rescue")

    def _watch(self, replays: Sequence[Replay]) -> None:
        """Note since when each hold of somebody else is as it is."""
        now, before = self._clock.elapsed(), self._seen
        holds = {replay.id: (replay.runner, replay.runner_until) for replay in replays if replay.runner}
        known = {id: before[id] for id, hold in holds.items() if id in before and before[id][0] == hold}
        self._seen = {id: (hold, now) for id, hold in holds.items()} | known

    def _is_nobodys(self, replay: Replay) -> bool:
        if replay.runner in (None, self._owner) or replay.runner_until is None:
            return True
        if self._clock.now() - replay.runner_until > APART:
            return True
        return self._clock.elapsed() - self._seen[replay.id][1] >= LEASE.total_seconds()

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
