"""One run of a replay by one process: look, decide (flow/steps.py), act, until it ends, pauses, or only waits.

Whatever it decides is in the replay's document before it acts on it, compare-and-set and only while it is the runner.
So a run that is killed is run on by another from what the document and the ledger say, and whoever pauses, changes or
cancels the replay is heard before the next batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from redrive.clock import Clock, Pause
from redrive.flow.comparing import compare, verdict
from redrive.flow.guard import Baseline, Fates
from redrive.flow.order import Order
from redrive.flow.replay_document import Paused, PausedBy, Replay, ReplayBook, ReplayState
from redrive.flow.sending import Batch, Sending, Taken
from redrive.flow.steps import Act, Advance, Await, End, Rest, Send, Supply, next_act
from redrive.flow.steps import Pause as PauseIt
from redrive.flow.watching import Watching, fates_of
from redrive.model import LetterId
from redrive.stores.base import EntryStatus, Store

LEASE = timedelta(seconds=60)
FIRST, BATCH, MOST = 200, 1000, 2000
_SPAN = 0.1  # seconds that a batch of more than the usual size may take: who pauses a replay is heard after it
_BYTES = 1 << 23  # of bodies in one batch: large ones go in smaller batches
_RENEWED = 1.0  # seconds between two writes of the document, if nothing else has to be written
_LOOKED = 1.0  # seconds between two looks at what became of the letters, while others are sent
_SHORTEST, _LONGEST = 0.05, 1.0  # seconds between two looks, while nothing else is to be done
_LINGER = 10.0  # seconds without an outcome after which a run lets go, and is looked at again now and then
_AGAIN = timedelta(seconds=2)
_BURST = 1.0  # seconds of its rate that a run may catch up

Progress = Callable[[int], None]


class Pace:
    """How fast letters go. What was missed is caught up, but never more than a second's worth."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate: float | None = None
        self._next = clock.elapsed()

    def next_at(self, rate: float | None, asked: int) -> float:
        """When the batch after one of so many letters may go."""
        now = self._clock.elapsed()
        if rate != self._rate:
            self._rate, self._next = rate, now if self._next > now else max(self._next, now - _BURST)
        self._next = max(self._next, now - _BURST) + (asked / rate if rate else 0.0)
        return self._next


class Run:
    """One run, by one runner."""

    def __init__(
        self,
        store: Store,
        sending: Sending,
        clock: Clock,
        replay: Replay,
        order: Order | None,
        progress: Progress,
    ) -> None:
        self._store = store
        self._book = ReplayBook(store.documents)
        self._sending = sending
        self._clock = clock
        self._id = replay.id
        self._runner = replay.runner or ""
        self._order = order
        self._progress = progress
        if order is not None and not replay.keyed:
            sending.before_lines = self._note_keys
        self._watching = Watching(store, sending, order, replay.id)
        self._fates = Fates(untold=replay.untold)
        self._pace = Pace(clock)
        self._after: str | None = None
        self._is_through = False  # everything selected was looked at
        self._ahead: asyncio.Future[Taken] | None = None  # the next batch, while the one before it is sent
        self._most = FIRST  # letters in a batch
        self._left = 0  # of it, letters that are asked for again
        self._written = self._looked = clock.elapsed()
        self._rests = _LOOKED
        self._heard_at = replay.heard_at or clock.now()
        self._known = -1

    async def to_its_end(self, replay: Replay) -> Replay:
        """Run it until it ends, is paused or cancelled, or can only wait; how it is then."""
        try:
            return await self._to_its_end(await self._begun(replay))
        except asyncio.CancelledError:
            if self._ahead is not None:
                self._ahead.cancel()
            raise
        finally:
            await self._end_ahead()

    async def _to_its_end(self, replay: Replay) -> Replay:
        polls = Pause(_SHORTEST, _LONGEST)
        while replay.is_run_by(self._runner):
            act = self._next_act(replay)
            if isinstance(act, Send):
                replay = await self._send(replay, act.most)
                polls.reset()
            elif isinstance(act, Await):
                replay = await self._await(replay, act.why, polls)
            else:
                replay = await self._move(replay, act)
        return replay

    def _next_act(self, replay: Replay) -> Act:
        if self._order is not None and self._order.is_overrun:
            return PauseIt(PausedBy.ORDER, "too many keys died again for their order to be kept: see --no-order")
        now = self._clock.now()
        return next_act(replace(replay, heard_at=self._heard_at), self._fates, self._supply(now), now)

    # -- sending -----------------------------------------------------------------------------------------------------

    async def _send(self, replay: Replay, most: int) -> Replay:
        """Send a batch, and claim the one after it meanwhile."""
        size = min(batch_size(replay.rate, self._most), most)
        ahead, self._ahead = self._ahead, None
        taken = await (ahead or self._next(replay.id, size))
        if self._clock.elapsed() - taken.at > self._sending.lease / 4:  # it waited long for those before it: claim anew
            taken = await self._sending.take(taken.ids)
        if self._may_claim_ahead(replay, most):
            self._ahead = asyncio.ensure_future(self._next(replay.id, size))
        began = self._clock.elapsed()
        batch = await self._sending.send(taken)
        self._count(batch, self._clock.elapsed() - began)
        return await self._wait(replay, self._pace.next_at(replay.rate, batch.asked))

    def _may_claim_ahead(self, replay: Replay, most: int) -> bool:
        """Only what is certain to be sent next: no rate, no step that ends before, and nothing that has to wait."""
        is_bounded = replay.rate is not None or most < replay.total or bool(self._sending.waits)
        order = self._order
        return not is_bounded and not self._is_through and (order is None or order.has_capacity)

    async def _next(self, id: str, size: int) -> Taken:
        return await self._sending.take(await self._take(id, size))

    async def _end_ahead(self) -> None:
        """Whoever gives back what is claimed has to find what we claim now."""
        if self._ahead is not None:
            await asyncio.wait([self._ahead])
            if not self._ahead.cancelled():
                self._ahead.exception()  # if the store is away: what it has of it is ours, as after a kill

    async def _take(self, id: str, size: int) -> list[LetterId]:
        """The next letters: those whose turn in their line has come, then the ledger's."""
        if self._order is not None and self._order.has_ready:
            return self._order.take_ready(size)
        if self._is_through:
            self._after, self._is_through, self._left = None, False, 0
        entries, self._after = await self._store.ledger.entries(
            id, status=EntryStatus.SELECTED, after=self._after, limit=size
        )
        self._is_through = self._after is None
        order = self._order
        return [entry.letter for entry in entries if order is None or not order.holds(entry.letter)]

    def _count(self, batch: Batch, took: float) -> None:
        fates, self._left = self._fates, self._left + batch.left
        self._fates = replace(
            fates,
            selected=max(fates.selected - batch.finished, 0),
            sent=fates.sent + batch.finished,
            untold=fates.untold + batch.untold,
        )
        if batch.asked:
            self._heard_at = self._clock.now()
            quick = int(batch.asked * _SPAN / max(took, 0.001))
            self._most = max(1, min(max(BATCH, min(quick, MOST)), _BYTES * batch.asked // max(batch.size, 1)))
        self._progress(batch.finished)

    def _supply(self, now: datetime) -> Supply:
        order = self._order
        if self._ahead is not None or (order is not None and order.has_ready):
            return Supply.MORE
        if not self._is_through:
            return Supply.MORE if order is None or order.has_capacity else Supply.BEHIND
        if self._left:
            return Supply.LATER if self._sending.waits.next_at(now) > now else Supply.MORE
        return Supply.BEHIND if order is not None and order.is_waiting else Supply.NONE

    async def _wait(self, replay: Replay, until: float) -> Replay:
        """Wait until it is time for the next batch, keeping our hold on it, and hearing who changes it."""
        rate = replay.rate
        while True:
            replay = await self._renewed(replay)
            if replay.guard is not None and self._clock.elapsed() - self._looked >= self._rests:
                await self._look(replay)
            left = until - self._clock.elapsed()
            if left <= 0 or not replay.is_run_by(self._runner) or replay.rate != rate:
                return replay
            await self._clock.sleep(min(left, _RENEWED))

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _await(self, replay: Replay, why: str, polls: Pause) -> Replay:
        """Look what became of letters; if nothing does for a while, let go of the replay, so that it takes no place."""
        if replay.awaits != why:
            replay = await self._keep(replay.id, awaits=why)
        if await self._look(replay):
            polls.reset()
            return await self._renewed(replay)
        if self._clock.now() - self._heard_at > timedelta(seconds=_LINGER):
            again_at = self._clock.now() + _AGAIN
            return await self._keep(replay.id, runner=None, runner_until=None, again_at=again_at)
        await self._clock.sleep(polls.next() if self._rests <= _LOOKED else self._rests)
        return await self._renewed(replay)

    async def _look(self, replay: Replay) -> bool:
        """Learn what became of letters; whether anything is new."""
        began = self._clock.elapsed()
        moved = await self._watching.look(is_through=self._is_through and self._ahead is None)
        self._fates = await fates_of(self._store, replay.id)
        self._looked = self._clock.elapsed()
        self._rests = max(_LOOKED, 10 * (self._looked - began))  # to look costs: it is no more than a tenth of our time
        is_new = moved or self._fates.known != self._known
        if self._fates.known != self._known:
            if self._known >= 0:
                self._heard_at = self._clock.now()
            self._known = self._fates.known
        return is_new

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _move(self, replay: Replay, act: Act) -> Replay:
        match act:
            case Advance(step):
                return await self._advance(replay, step)
            case PauseIt():
                return await self._pause(replay, act)
            case Rest():
                return await self._rest(replay)
            case End():
                return await self._end(replay)
        raise AssertionError(act)

    async def _advance(self, replay: Replay, step: int) -> Replay:
        now = self._clock.now()
        base = Baseline.of(self._fates, now)
        return await self._keep(replay.id, step=step, base=base, awaits="", runner_until=now + LEASE)

    async def _pause(self, replay: Replay, act: PauseIt) -> Replay:
        since = replay.base.at or replay.created_at
        found = await compare(self._store, replay.id, since, self._clock) if act.by is PausedBy.GUARD else ()
        why = ": ".join(part for part in (act.why, verdict(found)) if part)
        paused = Paused(by=act.by, why=why, actor=self._runner, at=self._clock.now(), compared=found)
        # we let go of it when what it had claimed is given back: nobody may run it before
        return await self._keep(replay.id, state=ReplayState.PAUSED, paused=paused, awaits="")

    async def _rest(self, replay: Replay) -> Replay:
        now = self._clock.now()
        again_at = self._sending.waits.next_at(now)
        if self._order is not None and self._order.is_waiting:
            again_at = min(again_at, now + _AGAIN)
        return await self._keep(replay.id, runner=None, runner_until=None, again_at=again_at)

    async def _end(self, replay: Replay) -> Replay:
        untold = (await fates_of(self._store, replay.id)).untold
        ended = {"state": ReplayState.SENT, "ended_at": self._clock.now(), **_LET_GO, "waits": (), "untold": untold}
        return await self._keep(replay.id, **ended)

    # -- the document ------------------------------------------------------------------------------------------------

    async def _begun(self, replay: Replay) -> Replay:
        if replay.guard is not None or self._order is not None:
            if self._order is not None and replay.keyed:
                await self._watching.recall()
            await self._look(replay)
        return replay

    async def _note_keys(self) -> None:
        """Who takes over has to know that there are lines, before a letter of one is sent."""
        await self._keep(self._id, keyed=True)

    async def _renewed(self, replay: Replay) -> Replay:
        """Look whether somebody changed it, and renew our hold on it now and then."""
        if self._clock.elapsed() - self._written >= _RENEWED or self._sending.waits.all != replay.waits:
            return await self._keep(replay.id, runner_until=self._clock.now() + LEASE)
        return (await self._book.load(replay.id))[0]

    async def _keep(self, id: str, **changes: Any) -> Replay:
        """Write these down, unless it was paused or cancelled, or somebody took it over when our hold had lapsed."""
        told = {"waits": self._sending.waits.all, "untold": self._fates.untold, "heard_at": self._heard_at}

        def change(replay: Replay) -> Replay:
            return replace(replay, **(told | changes)) if replay.is_run_by(self._runner) else replay

        self._written = self._clock.elapsed()
        return await self._book.change(id, change)


_LET_GO: dict[str, Any] = {"runner": None, "runner_until": None, "again_at": None, "awaits": ""}


def batch_size(rate: float | None, most: int = BATCH) -> int:
    """How many letters go at once."""
    return most if rate is None else max(1, min(most, int(rate)))
