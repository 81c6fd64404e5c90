"""Replays: send a selection of letters back, guarded and resumable, with a ledger of what became of each.

    start   the selection is frozen into the ledger; from then on only these letters are touched
    run     claim → send → confirm (flow/resend.py), batch by batch, as fast as the rate allows (flow/sending.py)
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
from enum import StrEnum
from math import inf
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import Unavailable, UnknownReplay, UsageError
from redrive.flow.fits import Fits
from redrive.flow.resend import Resend
from redrive.flow.sending import Sending
from redrive.flow.waiting import Wait, Waits
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import EntryStatus, Store
from redrive.telemetry.events import Events, ReplayMoved
from redrive.transports.base import Transport

KIND = "replay"
_BATCH = 200
_LEASE = timedelta(seconds=60)
_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)


class ReplayState(StrEnum):
    FREEZING = "freezing"  # its selection is being written down; who dies here has started nothing
    RUNNING = "running"
    SENT = "sent"  # everything selected was sent or skipped; outcomes may still come
    CANCELLED = "cancelled"


class Replay(Struct, frozen=True, kw_only=True):
    """One replay: what it selected, how fast it sends, and how far it is."""

    id: str
    query: Query
    actor: str
    created_at: datetime
    state: ReplayState = ReplayState.FREEZING
    total: int = 0
    rate: float | None = None  # letters a second
    reason: str = ""
    runner: str | None = None  # who runs it now
    runner_until: datetime | None = None
    ended_at: datetime | None = None
    waits: tuple[Wait, ...] = ()  # what does not take all that it is sent
    again_at: datetime | None = None  # nothing is left but what waits: not to be run before then
    untold: int = 0  # letters it sent to consumers that are not ours, when it ended: of them no outcome is awaited

    def is_due(self, now: datetime) -> bool:
        """Whether there is something to be sent."""
        return self.state is ReplayState.RUNNING and (self.again_at is None or self.again_at <= now)

    def is_run_by(self, runner: str) -> bool:
        return self.state is ReplayState.RUNNING and self.runner == runner


Progress = Callable[[int], None]


class Replays:
    """Starts, runs, resumes and cancels them."""

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
        self._transports = transports
        self._events = events
        self._clock = clock

    async def start(
        self, query: Query, *, actor: str, rate: float | None = None, reason: str = "", id: str | None = None
    ) -> Replay:
        """Freeze the selection. Nothing is sent yet. The same id again gives the replay that it already made."""
        if rate is not None and not 0 < rate < inf:
            raise UsageError(f"rate={rate}: a replay sends more than 0 letters a second")
        if id is not None and not _ID.fullmatch(id):  # it travels in a header
            raise UsageError(f"{id!r} is no id for a replay: 1 to 100 of a-z, A-Z, 0-9, and . _ : -")
        replay = Replay(
            id=id or self._clock.new_id(),
            query=query,
            actor=actor,
            created_at=self._clock.now(),
            rate=rate,
            reason=reason,
        )
        if not await self._store.documents.put(KIND, replay.id, _body(replay), expect=0):
            replay = await self.get(replay.id)
        if replay.state is ReplayState.FREEZING:
            total = await self._store.ledger.freeze(replay.id, selectable(replay.query), now=self._clock.now())
            replay = await self._change(replay.id, total=total, state=ReplayState.RUNNING)
            self._announce(replay)
        return replay

    async def get(self, id: str) -> Replay:
        return (await self._load(id))[0]

    async def list(self, limit: int = 100) -> Sequence[Replay]:
        """Newest first."""
        documents = await self._store.documents.list(KIND, limit=limit)
        return [msgspec.convert(document.body, Replay) for document in documents]

    async def cancel(self, id: str, *, actor: str) -> Replay:
        """Send no more. What was claimed but not sent is as it was before; what was sent keeps its course."""
        replay = await self.get(id)
        if replay.state is ReplayState.SENT:
            raise UsageError(f"replay {id} has ended: everything it selected was sent, nothing is left to cancel")
        if replay.state is ReplayState.CANCELLED:  # by somebody who may have died before it was through
            await self._let_go(replay)
            return replay
        replay = await self._change(id, state=ReplayState.CANCELLED, ended_at=self._clock.now(), waits=())
        await self._let_go(replay)
        self._announce(replace(replay, actor=actor))
        return replay

    async def resume(self, id: str) -> Replay:
        """Ask at once for what it waits for, with all the time that it had at its start."""
        return await self._change(id, waits=(), again_at=None)

    async def run(self, id: str, *, runner: str, progress: Progress = lambda finished: None) -> Replay:
        """Send until all that was selected is sent or skipped, or only what has to wait is left: then it is still
        RUNNING, and is to be run again at `again_at`. A replay that somebody else runs is left to them."""
        replay = await self._take_over(id, runner)
        if replay is None:
            return await self.get(id)
        try:
            return await self._run(replay, runner, progress)
        except (asyncio.CancelledError, Unavailable):  # nobody has to wait for our lease to end
            with suppress(Unavailable):
                if (await self.get(id)).runner == runner:
                    await self._change(id, runner=None, runner_until=None)
            raise

    async def _run(self, replay: Replay, runner: str, progress: Progress) -> Replay:
        sending = self._sending(replay)
        began, asked, left, after = self._clock.elapsed(), 0, 0, None
        while replay.is_run_by(runner):
            entries, after = await self._store.ledger.entries(
                replay.id, status=EntryStatus.SELECTED, after=after, limit=_batch(replay.rate)
            )
            batch = await sending.send([entry.letter for entry in entries])
            asked, left = asked + batch.asked, left + batch.left
            progress(batch.finished)
            if after is not None:
                replay = await self._wait(replay.id, runner, began + asked / (replay.rate or inf), sending.waits)
            else:
                replay, left = await self._once_through(replay.id, runner, left, sending.waits), 0
        if replay.state is ReplayState.CANCELLED:
            await self._let_go(replay)
        return replay

    async def _once_through(self, id: str, runner: str, left: int, waits: Waits) -> Replay:
        """Everything selected had its turn. It has ended; or nothing is left but what has to wait, and somebody runs it
        on when it is time; or there is something to do at once."""
        now = self._clock.now()
        if not left:
            return await self._end(id, runner)
        if (again_at := waits.next_at(now)) > now:
            return await self._keep(id, runner, runner=None, runner_until=None, again_at=again_at, waits=waits.all)
        return await self._keep(id, runner, runner_until=now + _LEASE, waits=waits.all)

    def _sending(self, replay: Replay) -> Sending:
        return Sending(self._store, self._way(replay), self._events, self._clock, replay=replay.id, waits=replay.waits)

    def _way(self, replay: Replay) -> Resend:
        return Resend(
            self._store,
            self._transports,
            self._clock,
            to=State.REPLAYING,
            owner=owner_of(replay.id),
            lease=_LEASE,
            replay=replay.id,
            fits=self._fits,
        )

    async def _wait(self, id: str, runner: str, until: float, waits: Waits) -> Replay:
        """Until it is time for the next batch, keeping our hold on it, and looking whether it was cancelled."""
        while True:
            replay = await self._keep(id, runner, runner_until=self._clock.now() + _LEASE, waits=waits.all)
            left = until - self._clock.elapsed()
            if left <= 0 or not replay.is_run_by(runner):
                return replay
            await self._clock.sleep(min(left, _LEASE.total_seconds() / 3))

    async def _let_go(self, replay: Replay) -> None:
        """Letters claimed by a replay that was cancelled, and not sent."""
        query, way = Query(owner=owner_of(replay.id)), self._way(replay)
        while letters := (await self._store.letters.search(query, limit=_BATCH)).letters:
            if not await way.undo(letters):
                return

    async def _take_over(self, id: str, runner: str) -> Replay | None:
        """Be the one that runs it; None if it has ended or somebody else runs it."""
        replay, version = await self._load(id)
        now = self._clock.now()
        held = replay.runner not in (None, runner) and replay.runner_until is not None and replay.runner_until > now
        if held or not replay.is_due(now):
            return None
        mine = replace(replay, runner=runner, runner_until=now + _LEASE, again_at=None)
        won = await self._store.documents.put(KIND, id, _body(mine), expect=version)
        return mine if won else None

    async def _keep(self, id: str, holder: str, **changes: Any) -> Replay:
        """Write these down, unless it was cancelled, or somebody took it over when our hold on it had lapsed."""
        while True:
            replay, version = await self._load(id)
            if replay.runner != holder or replay.state is not ReplayState.RUNNING:
                return replay
            held = replace(replay, **changes)
            if await self._store.documents.put(KIND, id, _body(held), expect=version):
                return held

    async def _end(self, id: str, runner: str) -> Replay:
        untold = await self._untold(id)
        ended = {"state": ReplayState.SENT, "ended_at": self._clock.now(), "waits": (), "untold": untold}
        replay = await self._keep(id, runner, runner=None, runner_until=None, **ended)
        if replay.state is ReplayState.SENT and replay.runner is None:
            self._announce(replay)
        return replay

    async def _untold(self, id: str) -> int:
        """How many of its letters went to consumers that are not ours: one question, where there are none such."""
        letters, ledger = self._store.letters, self._store.ledger
        if not await letters.count(Query(states=(State.SENT,))):
            return 0
        total, after = 0, None
        while True:
            entries, after = await ledger.entries(id, status=EntryStatus.SENT, after=after, limit=_BATCH)
            ids = tuple(entry.letter for entry in entries)
            total += await letters.count(Query(ids=ids, states=(State.SENT,))) if ids else 0
            if after is None:
                return total

    async def _change(self, id: str, **changes: Any) -> Replay:
        """Compare-and-set; a replay that has ended stays as it ended."""
        while True:
            replay, version = await self._load(id)
            if replay.state in (ReplayState.SENT, ReplayState.CANCELLED):
                changes = {name: value for name, value in changes.items() if name not in ("state", "ended_at")}
            changed = replace(replay, **changes)
            if await self._store.documents.put(KIND, id, _body(changed), expect=version):
                return changed

    async def _load(self, id: str) -> tuple[Replay, int]:
        document = await self._store.documents.get(KIND, id)
        if document is None:
            raise UnknownReplay(id)
        return msgspec.convert(document.body, Replay), document.version

    def _announce(self, replay: Replay) -> None:
        self._events.emit(ReplayMoved(replay=replay.id, state=replay.state, actor=replay.actor, total=replay.total))


def selectable(query: Query) -> Query:
    """What a replay of that query selects. What went to somebody else's consumer is sent again only if it is named, by
    its state or its id: nothing says that it failed, and a replay of a whole group must not double it."""
    if query.states is not None or query.ids is not None:
        return query
    return replace(query, states=(State.PENDING, State.EXHAUSTED))


def owner_of(replay: str) -> str:
    """The replay itself owns what it claims, so that whoever resumes it goes on with the same letters."""
    return f"replay:{replay}"


def _batch(rate: float | None) -> int:
    return _BATCH if rate is None else max(1, min(_BATCH, int(rate)))


def _body(replay: Replay) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(replay)
    return body
