"""Replays: resumable, guarded campaigns that send letters back, with a ledger of what became of each.

    start   the selection is frozen into the ledger; from then on only these letters are touched
    run     claim (compare-and-set) → send → confirm, batch by batch, as fast as the rate allows
    outcome a success resolves the letter, another death rejoins it; settle writes both into the ledger

A run that was killed is run again by anybody: what it had claimed is claimed again by the same owner (the replay
itself), and what it had sent already is still queued under the same id, or has its outcome. A rerun of a replay
that ended is a no-op.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
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
from redrive.errors import Unavailable, UnknownReplay, Unsendable, UsageError
from redrive.flow.lineage import sent_back
from redrive.forensics.query import Query
from redrive.model import Letter, Message, State
from redrive.stores.base import Entry, EntryStatus, Store
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
    """One campaign."""

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


Progress = Callable[[int], None]


class Replays:
    """Starts, runs, resumes and cancels them."""

    def __init__(self, store: Store, transports: Mapping[str, Transport], events: Events, clock: Clock) -> None:
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
            total = await self._store.ledger.freeze(replay.id, replay.query, now=self._clock.now())
            replay = await self._change(replay.id, total=total, state=ReplayState.RUNNING)
            self._tell(replay)
        return replay

    async def get(self, id: str) -> Replay:
        return (await self._load(id))[0]

    async def list(self, limit: int = 100) -> Sequence[Replay]:
        """Newest first."""
        documents = await self._store.documents.list(KIND, limit=limit)
        return [msgspec.convert(one.body, Replay) for one in documents]

    async def cancel(self, id: str, *, actor: str) -> Replay:
        """Send no more. What was claimed but not sent is as it was before; what was sent keeps its course."""
        replay = await self.get(id)
        if replay.state is ReplayState.SENT:
            raise UsageError(f"replay {id} has ended: everything it selected was sent, nothing is left to cancel")
        if replay.state is ReplayState.CANCELLED:  # by somebody who may have died before it was through
            await self._let_go(replay)
            return replay
        replay = await self._change(id, state=ReplayState.CANCELLED, ended_at=self._clock.now())
        await self._let_go(replay)
        self._tell(replace(replay, actor=actor))
        return replay

    async def run(self, id: str, *, runner: str, progress: Progress = lambda sent: None) -> Replay:
        """Until everything selected is sent or skipped. Somebody else running it already is left to it."""
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
        id, began, done = replay.id, self._clock.elapsed(), 0
        while replay.state is ReplayState.RUNNING and replay.runner == runner:
            batch = _BATCH if replay.rate is None else max(1, min(_BATCH, int(replay.rate)))
            entries, _ = await self._store.ledger.entries(id, status=EntryStatus.SELECTED, limit=batch)
            if not entries:
                return await self._end(id)
            await self._send(replay, [entry.letter for entry in entries])
            done += len(entries)
            progress(len(entries))
            next_at = began if replay.rate is None else began + done / replay.rate
            replay = await self._wait(id, runner, next_at)
        if replay.state is ReplayState.CANCELLED:
            await self._let_go(replay)
        return replay

    async def _wait(self, id: str, runner: str, until: float) -> Replay:
        """Until it is time for the next batch, keeping our hold on it, and looking whether it was cancelled."""
        while True:
            replay = await self._keep(id, runner)
            left = until - self._clock.elapsed()
            if left <= 0 or replay.state is not ReplayState.RUNNING or replay.runner != runner:
                return replay
            await self._clock.sleep(min(left, _LEASE.total_seconds() / 3))

    async def _send(self, replay: Replay, ids: Sequence[str]) -> None:
        """Claim, send, confirm. What the claim does not get is no longer as it was selected."""
        now = self._clock.now()
        letters = await self._store.letters.claim(
            Query(ids=tuple(ids)),
            to=State.REPLAYING,
            owner=owner_of(replay.id),
            now=now,
            until=now + _LEASE,
            limit=len(ids),
            replay=replay.id,
        )
        notes: dict[str, str] = {}
        for transport, some in _by_transport(letters).items():
            notes |= await self._not_sent(transport, some, [sent_back(one, now=now, replay=replay.id) for one in some])
        await self._confirm(replay, ids, letters, notes)

    async def _not_sent(self, transport: str, letters: Sequence[Letter], messages: Sequence[Message]) -> dict[str, str]:
        """Send them; why some of the letters could not be, and never will."""
        if transport not in self._transports:
            return {letter.id: f"this process has no transport {transport!r}" for letter in letters}
        try:
            await self._transports[transport].send(messages)
        except Unsendable as error:
            named = {letter.id: (letter.message.source, letter.message.id) for letter in letters}
            return {id: error.why[name] for id, name in named.items() if name in error.why}
        return {}

    async def _confirm(
        self, replay: Replay, ids: Sequence[str], letters: Sequence[Letter], notes: Mapping[str, str]
    ) -> None:
        now, mine = self._clock.now(), owner_of(replay.id)
        sent = {letter.id for letter in letters if letter.id not in notes}
        going = sent | await self._sent_before(replay, ids, letters)
        stuck = [letter for letter in letters if letter.id not in going]
        await self._store.letters.move(list(going), expect=[State.REPLAYING], to=State.REPLAYING, owner=mine, now=now)
        await self._undo(replay, stuck)
        changed = "it was changed, or waits for another, since it was selected"
        await self._store.ledger.mark(
            Entry(replay.id, id, EntryStatus.SENT, now)
            if id in going
            else Entry(replay.id, id, EntryStatus.SKIPPED, now, notes.get(id, changed))
            for id in ids
        )

    async def _sent_before(self, replay: Replay, ids: Sequence[str], claimed: Sequence[Letter]) -> set[str]:
        """Those that a run of this replay sent and confirmed, and died before it could write so into the ledger."""
        taken = {letter.id for letter in claimed}
        others = tuple(id for id in ids if id not in taken)
        if not others:
            return set()
        page = await self._store.letters.search(Query(ids=others), limit=len(others))
        return {letter.id for letter in page.letters if letter.replay == replay.id}

    async def _let_go(self, replay: Replay) -> None:
        """Letters claimed by a replay that was cancelled, and not sent."""
        query = Query(owner=owner_of(replay.id))
        while letters := (await self._store.letters.search(query, limit=_BATCH)).letters:
            if not await self._undo(replay, letters):
                return

    async def _undo(self, replay: Replay, letters: Sequence[Letter]) -> int:
        """As if they had not been claimed. What had been sent back before, and waits for no retry, was exhausted."""
        undone = 0
        for state in (State.PENDING, State.EXHAUSTED):
            ids = [one.id for one in letters if (state is State.EXHAUSTED) == _was_exhausted(one)]
            moved = await self._store.letters.move(
                ids, expect=[State.REPLAYING], to=state, owner=owner_of(replay.id), now=self._clock.now()
            )
            undone += len(moved)
        return undone

    async def _take_over(self, id: str, runner: str) -> Replay | None:
        """Be the one that runs it; None if it has ended or somebody else runs it."""
        replay, version = await self._load(id)
        now = self._clock.now()
        held = replay.runner not in (None, runner) and replay.runner_until is not None and replay.runner_until > now
        if replay.state is not ReplayState.RUNNING or held:
            return None
        mine = replace(replay, runner=runner, runner_until=now + _LEASE)
        won = await self._store.documents.put(KIND, id, _body(mine), expect=version)
        return mine if won else None

    async def _keep(self, id: str, runner: str) -> Replay:
        """Renew our hold on it, unless somebody took it over when ours had lapsed."""
        while True:
            replay, version = await self._load(id)
            if replay.runner != runner:
                return replay
            held = replace(replay, runner_until=self._clock.now() + _LEASE)
            if await self._store.documents.put(KIND, id, _body(held), expect=version):
                return held

    async def _end(self, id: str) -> Replay:
        replay = await self._change(
            id, state=ReplayState.SENT, ended_at=self._clock.now(), runner=None, runner_until=None
        )
        self._tell(replay)
        return replay

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

    def _tell(self, replay: Replay) -> None:
        self._events.emit(ReplayMoved(replay=replay.id, state=replay.state, actor=replay.actor, total=replay.total))


def owner_of(replay: str) -> str:
    """The replay itself owns what it claims, so that whoever resumes it goes on with the same letters."""
    return f"replay:{replay}"


def _was_exhausted(claimed: Letter) -> bool:
    return claimed.resends > 1 and claimed.next_retry_at is None


def _by_transport(letters: Sequence[Letter]) -> dict[str, list[Letter]]:
    found: dict[str, list[Letter]] = defaultdict(list)
    for letter in letters:
        found[letter.transport].append(letter)
    return found


def _body(replay: Replay) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(replay)
    return body
