"""The values of a replay: what it selected, how far it is, what it waits for. It is one document in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.errors import UnknownReplay
from redrive.flow.guard import Baseline, Guard
from redrive.flow.waiting import Wait
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import Document
from redrive.stores.base import Documents as DocumentStore

KIND, OPEN_KIND = "replay", "open-replay"
_LISTED, _MOST_OPEN = 1000, 10_000
DEADLINE = timedelta(minutes=15)
"""How long a replay waits without a single outcome before it pauses."""


class ReplayState(StrEnum):
    FREEZING = "freezing"  # its selection is being written down; nothing is sent before all of it is
    RUNNING = "running"
    PAUSED = "paused"  # nothing is sent until somebody says so: `Replay.paused` says why
    SENT = "sent"  # everything selected was sent or skipped; outcomes may still come
    CANCELLED = "cancelled"


ENDED = (ReplayState.SENT, ReplayState.CANCELLED)


class PausedBy(StrEnum):
    """What paused a replay."""

    HAND = "hand"  # somebody did
    APPROVAL = "approval"  # a second person has to look at it first
    GUARD = "guard"  # too many letters of a step died again
    DEADLINE = "deadline"  # outcomes that it waits for do not come
    ORDER = "order"  # more keys died again than can be remembered


class Compared(Struct, frozen=True, kw_only=True):
    """Letters that died again: what they died of before, and what they died of now."""

    letters: int
    before: str  # the error
    before_group: str
    now: str
    now_group: str

    @property
    def is_same(self) -> bool:
        """Whether the bug is still there; if not, it fails elsewhere now."""
        return self.before_group == self.now_group


class Paused(Struct, frozen=True, kw_only=True):
    """Why a replay is paused, since when, and by whom."""

    by: PausedBy
    why: str
    actor: str
    at: datetime
    compared: tuple[Compared, ...] = ()  # the most frequent first


class Replay(Struct, frozen=True, kw_only=True):
    """One replay: what it selected, how it sends, and how far it is."""

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
    untold: int = 0  # letters it sent to consumers that are not ours: of them no outcome is awaited
    guard: Guard | None = None
    step: int = 0  # of the guard's steps
    base: Baseline = Baseline()  # what was known when this step began
    deadline: timedelta = DEADLINE  # so long without an outcome, and it pauses
    heard_at: datetime | None = None  # when the last outcome came, or the last letter went
    ordered: bool = False  # letters of one key go one after the other
    keyed: bool = False  # it has sent letters that have a key
    newest: datetime | None = None  # when the last of its letters had died: what died later was not selected as it is
    awaits: str = ""  # what it waits for now, for people
    paused: Paused | None = None
    selects: Query | None = None  # what whoever runs it has yet to freeze; None: whoever started it does that
    guard_many: bool = False  # if it has no guard then, and many letters, it takes the usual one

    def is_due(self, now: datetime) -> bool:
        """Whether there is something to be done."""
        if self.state is ReplayState.FREEZING:
            return self.selects is not None
        return self.state is ReplayState.RUNNING and (self.again_at is None or self.again_at <= now)

    def is_run_by(self, runner: str) -> bool:
        return self.state is ReplayState.RUNNING and self.runner == runner

    @property
    def steps(self) -> tuple[int, ...]:
        """How many letters are gone after each step."""
        return (self.total,) if self.guard is None else self.guard.steps(self.total)


class NewPace(Struct, frozen=True, kw_only=True):
    """How fast and how carefully a replay is to go from now on. What is not given stays as it is."""

    rate: float | None = None
    unlimited: bool = False  # as fast as the transport takes them
    share: float | None = None  # of a step, that may die again
    guarded: bool | None = None  # false: the rest goes without waiting for outcomes

    def rate_of(self, replay: Replay) -> float | None:
        return None if self.unlimited else replay.rate if self.rate is None else self.rate

    def guard_of(self, replay: Replay) -> Guard | None:
        if self.guarded is False:
            return None
        if self.share is not None:
            return replace(replay.guard or Guard(), share=self.share).checked()
        return (replay.guard or Guard()) if self.guarded else replay.guard


class ReplayBook:
    """The documents of replays, each change of them compare-and-set."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def make(self, replay: Replay) -> bool:
        """Write a new one; False if there is one of that id."""
        return await self._documents.put(KIND, replay.id, _body(replay), expect=0)

    async def load(self, id: str) -> tuple[Replay, int]:
        """It, and its version."""
        document = await self._documents.get(KIND, id)
        if document is None:
            raise UnknownReplay(id)
        return _read(document), document.version

    async def list(self, limit: int) -> list[Replay]:
        """Newest first."""
        return [_read(document) for document in await self._documents.list(KIND, limit=limit)]

    async def note_open(self, id: str) -> None:
        """Note that it has not ended: it is found by that however many come after it. Written before it runs."""
        await self._documents.put(OPEN_KIND, id, {})

    async def open(self) -> Sequence[Replay]:
        """Those that have not ended, newest first: by their notes, and of those that have none the newest."""
        found = {replay.id: replay for replay in await self.list(_LISTED)}
        for note in await self._documents.list(OPEN_KIND, limit=_MOST_OPEN):
            if note.id not in found and (document := await self._documents.get(KIND, note.id)) is not None:
                found[note.id] = _read(document)
            if note.id not in found or found[note.id].state in ENDED:
                await self._documents.delete(OPEN_KIND, note.id)
        return sorted((it for it in found.values() if it.state not in ENDED), key=lambda it: it.id, reverse=True)

    async def write(self, replay: Replay, version: int) -> bool:
        """Write it, if nobody changed it since that version."""
        return await self._documents.put(KIND, replay.id, _body(replay), expect=version)

    async def change(self, id: str, change: Callable[[Replay], Replay]) -> Replay:
        """Change it, whatever others do meanwhile; what the change leaves as it is costs no write."""
        while True:
            replay, version = await self.load(id)
            changed = change(replay)
            if changed is replay or await self.write(changed, version):
                return changed


def selectable(query: Query) -> Query:
    """What a replay of that query selects. What went to somebody else's consumer is sent again only if it is named, by
    its state or its id: nothing says that it failed, and a replay of a whole group must not double it."""
    if query.states is not None or query.ids is not None:
        return query
    return replace(query, states=(State.PENDING, State.EXHAUSTED))


def owner_of(replay: str) -> str:
    """The replay itself owns what it claims, so that whoever resumes it goes on with the same letters."""
    return f"replay:{replay}"


def _body(replay: Replay) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(replay)
    return body


def _read(document: Document) -> Replay:
    return msgspec.convert(document.body, Replay)
