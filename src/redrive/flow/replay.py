"""Replays: send a selection of letters back, guarded and resumable, with a ledger of what became of each.

    start   the selection is frozen into the ledger; from then on only these letters are touched
    run     claim → send → confirm (flow/resend.py), batch by batch, at its rate (flow/running.py, sending.py)
    steps   a few first, then more, each awaited; too many that die again pause it (flow/guard.py, steps.py: pure)
    order   letters of one key one after the other, children after parents (flow/order.py: pure)
    wait    what is not accepted now is asked for again after a pause, and skipped in the end (flow/waiting.py)
    outcome a success resolves the letter, another death rejoins it; settle writes both into the ledger

A run that was killed is run again by anybody: what it had claimed is claimed again by the same owner (the replay
itself), and what it had sent already is still queued under the same id, or has its outcome. A rerun of a replay
that ended is a no-op.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import ReplayExists, Unavailable, UsageError
from redrive.flow.fits import Fits
from redrive.flow.guard import BY_ITSELF, Baseline, Guard
from redrive.flow.order import Order
from redrive.flow.replay_document import (
    DEADLINE,
    ENDED,
    KIND,
    NewPace,
    Paused,
    PausedBy,
    Replay,
    ReplayBook,
    ReplayState,
    owner_of,
    selectable,
)
from redrive.flow.resend import Resend
from redrive.flow.running import LEASE, Progress, Run
from redrive.flow.sending import Sending
from redrive.flow.watching import fates_of
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import Store
from redrive.telemetry.events import Events, ReplayMoved
from redrive.transports.base import Transport

__all__ = ["KIND", "LEASE", "Progress", "Replay", "ReplayState", "Replays", "owner_of", "selectable"]
_BATCH = 200
_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)


class Replays:
    """Starts, runs, pauses, resumes and cancels them."""

    def __init__(
        self,
        store: Store,
        transports: Mapping[str, Transport],
        events: Events,
        clock: Clock,
        *,
        fits: Fits = lambda message: None,
    ) -> None:
        self._fits = fits
        self._store = store
        self._book = ReplayBook(store.documents)
        self._transports = transports
        self._events = events
        self._clock = clock

    async def start(
        self,
        query: Query,
        *,
        actor: str,
        rate: float | None = None,
        reason: str = "",
        id: str | None = None,
        guard: Guard | None = None,
        guard_many: bool = False,
        ordered: bool = False,
        deadline: timedelta = DEADLINE,
        waits: Callable[[int], bool] = lambda total: False,
        selects: Query | None = None,
    ) -> Replay:
        """Freeze the selection. Nothing is sent yet. The same id and query again give the replay that they made.

        guard        how carefully it goes
        guard_many   if no guard is given, and there are more letters than a hundred, take the usual one
        ordered      letters of one key go one after the other
        deadline     so long without an outcome that it waits for, and it pauses
        waits        whether so many letters wait for a second person: then it is paused from its start
        selects      it is large: return at once, and let whoever runs it freeze this, which is the query and no more
        """
        _check(rate, id, deadline)
        replay = Replay(
            id=id or self._clock.new_id(),
            query=query,
            actor=actor,
            created_at=self._clock.now(),
            rate=rate,
            reason=reason,
            guard=None if guard is None else guard.checked(),
            ordered=ordered,
            deadline=deadline,
            selects=selects,
            guard_many=guard_many,
        )
        if selects is not None:
            await self._book.note_open(replay.id)  # first: who finds it later may find it among many
        if not await self._book.make(replay):
            replay = await self.get(replay.id)
            if replay.query != query:
                raise ReplayExists(replay.id)
        is_ours = replay.state is ReplayState.FREEZING and replay.selects is None
        return await self._freeze(replay, waits) if is_ours else replay

    async def _freeze(self, replay: Replay, waits: Callable[[int], bool] = lambda total: False) -> Replay:
        query = selectable(replay.query) if replay.selects is None else replay.selects
        total = await self._store.ledger.freeze(replay.id, query, now=self._clock.now())
        newest = await self._newest(query)
        await self._book.note_open(replay.id)
        guard = replay.guard or (Guard() if replay.guard_many and total > BY_ITSELF else None)

        why, now = "it waits until a second person approves it", self._clock.now()
        held = Paused(by=PausedBy.APPROVAL, why=why, actor=replay.actor, at=now) if waits(total) else None

        def frozen(old: Replay) -> Replay:
            if old.state is not ReplayState.FREEZING:
                return old
            state = ReplayState.RUNNING if held is None else ReplayState.PAUSED
            return replace(old, total=total, state=state, paused=held, guard=guard, newest=newest, selects=None)

        replay = await self._book.change(replay.id, frozen)
        self._announce(replay)
        return replay

    async def _newest(self, query: Query) -> datetime | None:
        """When the last of them had died, by whatever clock that was written: other clocks may be apart from ours."""
        page = await self._store.letters.search(query, limit=1)
        return page.letters[0].created_at if page.letters else None

    async def get(self, id: str) -> Replay:
        return (await self._book.load(id))[0]

    async def list(self, limit: int = 100) -> Sequence[Replay]:
        """Newest first."""
        return await self._book.list(limit)

    async def open(self) -> Sequence[Replay]:
        """All that have not ended, however many were made since, newest first."""
        return await self._book.open()

    # -- by hand -----------------------------------------------------------------------------------------------------

    async def pause(self, id: str, *, actor: str, why: str = "") -> Replay:
        """Send no more of it until somebody resumes it. Who runs it hears of it before the next batch."""
        paused = Paused(by=PausedBy.HAND, why=why, actor=actor, at=self._clock.now())

        def change(replay: Replay) -> Replay:
            _check_open(replay, "paused")
            if replay.state is ReplayState.PAUSED:
                return replay
            return replace(replay, state=ReplayState.PAUSED, paused=paused, awaits="")

        replay = await self._book.change(id, change)
        if replay.paused == paused:
            self._announce(replace(replay, actor=actor))
        return replay

    async def resume(self, id: str, *, actor: str = "", approved: bool = False) -> Replay:
        """Go on: with what it waits for at once, and with all the time that it had at its start. A step that was paused
        is behind it: what is known by now, and what is on its way, is not counted again."""
        fates, now = await fates_of(self._store, id), self._clock.now()
        was_paused = (await self.get(id)).state is ReplayState.PAUSED

        def change(replay: Replay) -> Replay:
            if replay.paused is not None and replay.paused.by is PausedBy.APPROVAL and not approved:
                raise UsageError(f"replay {id} waits until a second person approves it: `redrive approvals` lists it")
            replay = replace(replay, waits=(), again_at=None)
            if replay.state is not ReplayState.PAUSED:
                return replay
            base = Baseline.of(fates, now)
            return replace(replay, state=ReplayState.RUNNING, paused=None, base=base, heard_at=now)

        replay = await self._book.change(id, change)
        if was_paused and replay.state is ReplayState.RUNNING:
            self._announce(replace(replay, actor=actor or replay.actor))
        return replay

    async def change_pace(self, id: str, pace: NewPace) -> Replay:
        """Let it go so fast and so carefully from now on. What two people change at once is both changed."""
        _check(pace.rate, None, DEADLINE)

        def change(replay: Replay) -> Replay:
            _check_open(replay, "changed")
            rate, guard = pace.rate_of(replay), pace.guard_of(replay)
            step = replay.step if guard is not None and replay.guard is not None else 0
            return replace(replay, rate=rate, guard=guard, step=min(step, len(_steps(replay, guard)) - 1))

        return await self._book.change(id, change)

    async def cancel(self, id: str, *, actor: str) -> Replay:
        """Send no more of it. What was sent stays sent; the rest waits as before. Once more changes nothing."""
        replay = await self.get(id)
        if replay.state is ReplayState.SENT:
            raise UsageError(f"replay {id} has ended: everything it selected was sent, nothing is left to cancel")
        if replay.state is ReplayState.CANCELLED:  # by somebody who may have died before it was through
            await self._let_go(replay)
            return replay
        now = self._clock.now()

        def change(old: Replay) -> Replay:
            if old.state in ENDED:
                return replace(old, waits=())
            return replace(old, state=ReplayState.CANCELLED, ended_at=now, waits=(), awaits="")

        replay = await self._book.change(id, change)
        await self._let_go(replay)
        self._announce(replace(replay, actor=actor))
        return replay

    # -- running -----------------------------------------------------------------------------------------------------

    async def run(self, id: str, *, runner: str, progress: Progress = lambda finished: None) -> Replay:
        """Send until all that was selected is sent or skipped, it is paused, or only what has to wait is left: then it
        is still RUNNING, and is to be run again at `again_at`. A replay that somebody else runs is left to them."""
        replay = await self._take_over(id, runner)
        if replay is None:
            return await self.get(id)
        try:
            if replay.state is ReplayState.FREEZING:
                replay = await self._freeze(replay)  # a crash here leaves it freezing: somebody else does it again
            if replay.is_run_by(runner):
                replay = await self._run(replay, progress)
        except (asyncio.CancelledError, Unavailable):  # nobody has to wait for our lease to end
            with suppress(Unavailable):
                await self._leave(id, runner)
            raise
        if replay.state in (ReplayState.PAUSED, ReplayState.CANCELLED):
            await self._let_go(replay)
            replay = await self._leave(id, runner)
        return replay

    async def _run(self, replay: Replay, progress: Progress) -> Replay:
        order = Order() if replay.ordered else None
        sending = Sending(
            self._store,
            self._way(replay),
            self._events,
            self._clock,
            replay=replay.id,
            waits=replay.waits,
            newest=replay.newest,
            since=replay.created_at if replay.newest is not None else None,
            order=order,
        )
        runner = replay.runner
        after = await Run(self._store, sending, self._clock, replay, order, progress).to_its_end(replay)
        if after.state is ReplayState.SENT or (after.paused is not None and after.paused.actor == runner):
            self._announce(after)
        return after

    def _way(self, replay: Replay) -> Resend:
        return Resend(
            self._store,
            self._transports,
            self._clock,
            to=State.REPLAYING,
            owner=owner_of(replay.id),
            lease=LEASE,
            replay=replay.id,
            fits=self._fits,
        )

    async def give_back(self, id: str, *, actor: str) -> None:
        """Give back what a replay has claimed that was paused or cancelled, if who had it died before.

        A paused one is ours meanwhile, so that nobody who resumes it claims what we give back."""
        replay, version = await self._book.load(id)
        if replay.state is ReplayState.CANCELLED:
            await self._let_go(replay)
        if replay.state is not ReplayState.PAUSED or self._is_held(replay, actor):
            return
        ours = replace(replay, runner=actor, runner_until=self._clock.now() + LEASE)
        if await self._book.write(ours, version):
            await self._let_go(replay)
            await self._leave(id, actor)

    async def _let_go(self, replay: Replay) -> None:
        """Letters claimed by a replay that was paused or cancelled, and not sent."""
        query, way = Query(owner=owner_of(replay.id)), self._way(replay)
        while letters := (await self._store.letters.search(query, limit=_BATCH)).letters:
            if not await way.undo(letters):
                return

    async def _take_over(self, id: str, runner: str) -> Replay | None:
        """Be the one that runs it; None if it has ended or somebody else runs it."""
        replay, version = await self._book.load(id)
        now = self._clock.now()
        if self._is_held(replay, runner) or not replay.is_due(now):
            return None
        mine = replace(replay, runner=runner, runner_until=now + LEASE, again_at=None)
        return mine if await self._book.write(mine, version) else None

    def _is_held(self, replay: Replay, runner: str) -> bool:
        """Whether somebody else runs it."""
        until = replay.runner_until
        return replay.runner not in (None, runner) and until is not None and until > self._clock.now()

    async def _leave(self, id: str, runner: str) -> Replay:
        """Be no longer the one that runs it."""
        return await self._book.change(
            id, lambda replay: replace(replay, runner=None, runner_until=None) if replay.runner == runner else replay
        )

    def _announce(self, replay: Replay) -> None:
        why = "" if replay.paused is None else replay.paused.why
        self._events.emit(
            ReplayMoved(replay=replay.id, state=replay.state, actor=replay.actor, total=replay.total, why=why)
        )


def _check(rate: float | None, id: str | None, deadline: timedelta) -> None:
    if rate is not None and not 0 < rate < inf:
        raise UsageError(f"rate={rate}: a replay sends more than 0 letters a second")
    if id is not None and not _ID.fullmatch(id):  # it travels in a header
        raise UsageError(f"{id!r} is no id for a replay: 1 to 100 of a-z, A-Z, 0-9, and . _ : -")
    if deadline <= timedelta():
        raise UsageError(f"deadline={deadline}: it has to be some time, such as 15m")


def _check_open(replay: Replay, verb: str) -> None:
    if replay.state in ENDED:
        raise UsageError(f"replay {replay.id} is {replay.state}: it cannot be {verb} any more")
    if replay.state is ReplayState.FREEZING:
        raise UsageError(f"replay {replay.id} has not begun: its selection is being written down")


def _steps(replay: Replay, guard: Guard | None) -> tuple[int, ...]:
    return replace(replay, guard=guard).steps
