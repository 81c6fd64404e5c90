"""Watches groups that are fixed in a version: when it is deployed their letters go back, or somebody is told that they
can; when a letter dies on it all the same, the group has regressed.

Any number of processes do so on one store. A step is compare-and-set on the mark of the group, and a replay has an id
that follows from the fix: whoever comes second finds it made. A process that dies between the two leaves the next one
to make it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.clock import Clock
from redrive.errors import UnknownReplay
from redrive.flow.guard import Guard
from redrive.flow.replay import Replays, selectable
from redrive.forensics.deployment import Deployment, Running, deployment
from redrive.forensics.marks import Fix, GroupState, Mark, Marks
from redrive.forensics.query import Query
from redrive.forensics.version_order import is_at_least
from redrive.forensics.workers import Roll
from redrive.model import Letter
from redrive.stores.base import Store
from redrive.stores.paging import every_page
from redrive.telemetry.events import Events, GroupDeployed, GroupRegressed
from redrive.upkeep.heartbeat import EVERY, beats

_MOST_READ = 5000  # letters of a group that are looked at in one round
_LATE = timedelta(minutes=5)  # by which a letter may be written after its time, or a clock be behind ours


class Workers:
    """The workers that live. One that may have a wrong clock counts until it has had time for another beat."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._documents = store.documents
        self._clock = clock
        self._roll = Roll(EVERY)

    async def running(self) -> list[Running]:
        found = await beats(self._documents)
        now, at = self._clock.now(), self._clock.elapsed()
        self._roll.look({id: number for id, (number, _) in found.items()}, at)
        return [
            Running(beat.worker, beat.version, frozenset(working.source for working in beat.sources))
            for id, (_, beat) in found.items()
            if not self._roll.is_lost(id, (now - beat.at).total_seconds(), at)
        ]


class Fixes:
    """One round at a time over every group that is fixed."""

    def __init__(self, store: Store, replays: Replays, events: Events, clock: Clock) -> None:
        self._store = store
        self._replays = replays
        self._events = events
        self._clock = clock
        self._marks = Marks(store.documents)
        self._workers = Workers(store, clock)
        self._read: dict[str, datetime] = {}  # fix -> until when its group's letters were looked at

    async def cycle(self) -> None:
        """Look at each fix once. Nothing is asked of the letters while nothing is fixed."""
        marks = [mark for mark in (await self._marks.all()).values() if mark.fix is not None]
        self._read = {mark.fix.id: self._read[mark.fix.id] for mark in marks if mark.fix and mark.fix.id in self._read}
        running = await self._workers.running() if marks else []
        for mark in marks:
            if mark.fix is not None and mark.fix.state is not GroupState.REGRESSED:
                await self._look_at(mark, mark.fix, running)

    async def _look_at(self, mark: Mark, fix: Fix, running: list[Running]) -> None:
        if await self._regressed(mark.group, fix):
            return
        if fix.state is GroupState.FIXED:
            standing = await self.deployment(mark.group, fix.version, running)
            if not standing.is_complete or not await self._deployed(mark.group, fix):
                return
        if fix.auto:
            await self._send_back(mark.group, fix)

    async def deployment(self, group: str, version: str, running: list[Running] | None = None) -> Deployment:
        """Whether every worker of the group's sources runs that version."""
        found = await self._store.letters.groups(Query(groups=(group,)), limit=1)
        sources = found[0].sources if found else ()
        return deployment(version, sources, await self._workers.running() if running is None else running)

    async def running(self) -> list[Running]:
        """The workers that live."""
        return await self._workers.running()

    async def _deployed(self, group: str, fix: Fix) -> bool:
        """Write down that it is deployed, and say so; returns whether there is something to do for us."""
        now = self._clock.now()
        if not await self._marks.change_fix(group, fix.id, deployed_at=now):
            return False
        count = await self._store.letters.count(selectable(Query(groups=(group,))))
        self._events.emit(GroupDeployed(group=group, version=fix.version, auto=fix.auto, letters=count))
        return True

    async def _send_back(self, group: str, fix: Fix) -> None:
        """Start the replay of a fix that is deployed, if nobody has yet."""
        replay = replay_of(fix)
        if fix.replay is not None:
            return
        try:
            await self._replays.get(replay)
        except UnknownReplay:
            query = Query(groups=(group,))
            if not await self._store.letters.count(selectable(query)):
                return
            actor, reason = f"fix by {fix.by}", f"fixed in {fix.version}"
            await self._replays.start(query, actor=actor, reason=reason, id=replay, guard=Guard())
        await self._marks.change_fix(group, fix.id, replay=replay)

    async def _regressed(self, group: str, fix: Fix) -> bool:
        """Whether a letter of it died on the version that fixes it, since it was said to."""
        began = self._clock.now()
        letter = await self._dead_on(group, fix)
        if letter is None:
            self._read[fix.id] = began
            return False
        version = letter.last.version
        if await self._marks.change_fix(group, fix.id, regressed_at=began, regressed_in=version, letter=letter.id):
            self._events.emit(GroupRegressed(group=group, version=fix.version, died_on=version, letter=letter.id))
        return True

    async def _dead_on(self, group: str, fix: Fix) -> Letter | None:
        since = max(fix.at, self._read.get(fix.id, fix.at) - _LATE)
        read = 0
        async for page in every_page(self._store.letters, Query(groups=(group,), since=since), size=500):
            for letter in page:
                last = letter.last
                if last.version and last.at >= fix.at and is_at_least(last.version, fix.version):
                    return letter
            read += len(page)
            if read >= _MOST_READ:
                break
        return None


def replay_of(fix: Fix) -> str:
    """The id of the replay that is started for a fix."""
    return f"fix-{fix.id}"
