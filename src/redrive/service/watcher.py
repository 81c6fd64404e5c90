"""Tells pages what changed: one watcher for a process, however many pages are open.

It looks at the stamps of the store (stamps.py) about once a second while somebody listens, at once when this process
itself did something, and never so often that looking is more than a twentieth of the time. Who reaches a part of the
letters hears of that part only.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from redrive.access.actors import Actor, Role
from redrive.access.approvals import KIND as APPROVALS
from redrive.errors import NotFound, TooManyListeners, Unavailable
from redrive.flow.replay_document import KIND as REPLAYS
from redrive.forensics.scope import Scope
from redrive.service.seen import reaches_whole
from redrive.service.stamps import (
    LETTERS,
    ON_LETTERS,
    ON_SOURCES,
    WHAT,
    Look,
    What,
    changes,
    counts_stamp,
    look_at,
    newest_stamp,
)
from redrive.stores.base import Document, HasPulse
from redrive.telemetry import events
from redrive.upkeep.heartbeat import KIND as BEATS

if TYPE_CHECKING:
    from redrive.service.service import Service

log = logging.getLogger("redrive")
EVERY, LEAST = 1.5, 1.0
"""Seconds between two looks if this process does nothing, and at least: so often something is said to have changed."""
_SHARE = 20  # looking takes at most this part of the time
_LONGEST = 20.0  # seconds between two looks, however long one took: a role that was taken ends a stream
_CHECKED = 2.0  # seconds after which it is asked again who a listener is
_LINGER = 30.0  # seconds without a listener after which nobody looks any more
_SLOW = 10.0  # seconds between two counts of a scope that no counter knows
_REMEMBERED = 300  # messages that somebody who comes back can be told of
_MOST, _EACH = 200, 20
_WAKES = (
    events.MessageBuried,
    events.LetterResolved,
    events.LettersMoved,
    events.LettersPruned,
    events.LettersRetried,
    events.ReplayMoved,
    events.IncidentMoved,
    events.SourceStormed,
    events.StormEnded,
    events.GroupDeployed,
    events.GroupRegressed,
    events.WorkerStarted,
    events.WorkerStopped,
    events.Acted,
)
Known: TypeAlias = Callable[[], Awaitable[Actor | None]]


class ReplayProgress(Struct, frozen=True):
    """How far a replay is."""

    id: str
    state: str
    tally: dict[str, int]


class News(Struct):
    """What a listener has not been told yet. A page that reads slowly is told less often, and misses nothing."""

    what: set[What] = field(default_factory=set)
    replays: dict[str, ReplayProgress] = field(default_factory=dict)
    over: str | None = None  # why it ends


class Listener:
    """One open page."""

    def __init__(self, channel: Channel, actor: Actor, known: Known, login: str) -> None:
        self.channel = channel
        self.actor = actor
        self.known = known
        self.login = login
        self.news = News()
        self.woken = asyncio.Event()

    def take(self) -> News:
        """What there is to tell; from now on it is told."""
        news, self.news = self.news, News(over=self.news.over)
        if news.over is None:
            self.woken.clear()
        return news

    def end(self, why: str) -> None:
        self.news.over = self.news.over or why
        self.woken.set()


class Channel:
    """What those hear who may know the same. Its messages are numbered: who comes back is told what it has missed."""

    def __init__(self, service: Service, actor: Actor) -> None:
        self.name = secrets.token_hex(4)
        self.actor = actor
        self.listeners: list[Listener] = []
        self.number = 0
        self._service = service
        self._newest: Any = None
        self._counts: Any = None
        self._counted_at = 0.0
        self._pauses: Any = None
        self._history: deque[tuple[int, frozenset[What]]] = deque(maxlen=_REMEMBERED)
        self._replays: dict[str, bool] = {}

    @property
    def id(self) -> str:
        """The id of what was told last."""
        return f"{self.name}.{self.number}"

    def missed(self, last: str | None) -> frozenset[What]:
        """What may have changed since that id: everything, if it is none of ours, or too old."""
        if last is None:
            return frozenset()
        name, _, number = last.partition(".")
        known = self._history[0][0] - 1 if self._history else self.number
        if name != self.name or not number.isdecimal() or not known <= int(number) <= self.number:
            return frozenset(What)
        return frozenset(what for told, some in self._history if told > int(number) for what in some)

    def tell(self, what: Iterable[What], replays: Sequence[ReplayProgress]) -> None:
        """Tell everybody who listens."""
        told = frozenset(what)
        if told:
            self.number += 1
            self._history.append((self.number, told))
        for listener in self.listeners:
            self.tell_one(listener, told, replays)

    def tell_one(self, listener: Listener, what: Iterable[What], replays: Iterable[ReplayProgress] = ()) -> None:
        """Tell one of them only: what it has missed."""
        listener.news.what.update(what)
        listener.news.replays.update({replay.id: replay for replay in replays})
        if listener.news.what or listener.news.replays:
            listener.woken.set()

    async def begin(self) -> None:
        """Know how the letters are now, so that the next change is one."""
        if not self.actor.scope.is_everything:
            await self._count()
            self._newest = await newest_stamp(self._service.app.store.letters)
            self._pauses = await self._service.pauses()

    async def heard(self, found: dict[str, list[str]], look: Look) -> set[What]:
        """Which of these changes its listeners may know of."""
        told: set[What] = set()
        for kind, ids in found.items():
            if not told.issuperset(WHAT[kind]) and await self._may_know(kind, ids, look):
                told.update(WHAT[kind])
        return told if self.actor.role.allows(Role.OPERATOR) else told - {What.APPROVALS}

    async def sees_replay(self, id: str, look: Look) -> bool:
        """Whether it is theirs; looked up once its selection is frozen, which then stays as it is."""
        if self.actor.scope.is_everything:
            return True
        document = look.documents[REPLAYS].get(id)
        if id not in self._replays:
            seen = await self._service.app.store.documents.get(REPLAYS, id) is not None
            if document is None or document.body["state"] == "freezing":
                return seen
            self._replays[id] = seen
        return self._replays[id]

    async def _may_know(self, kind: str, ids: list[str], look: Look) -> bool:
        if self.actor.scope.is_everything:
            return True
        if kind == LETTERS:
            return await self._letters_changed()
        if kind == ON_SOURCES:
            return await self._pauses_changed()
        if kind == ON_LETTERS:
            about = [id for seq in ids for id in look.lines[seq].about][:_EACH]
            return any([await self._service.app.store.letters.get(id) is not None for id in about])
        return any([await self._sees(kind, id, look) for id in ids[:_EACH]])

    async def _sees(self, kind: str, id: str, look: Look) -> bool:
        document = look.documents[kind].get(id)
        if kind == REPLAYS:
            return await self.sees_replay(id, look)
        if kind == BEATS:
            return document is not None and _works_for(self.actor.scope, document)
        if kind == APPROVALS:
            return await self._sees_approval(id)
        return await self._service.app.store.documents.get(kind, id) is not None

    async def _sees_approval(self, id: str) -> bool:
        try:
            return await self._service.four_eyes.seen(id, self.actor) is not None
        except NotFound:
            return False

    async def _letters_changed(self) -> bool:
        """Whether their letters changed. What no counter counts is counted now and then."""
        before = self._newest, self._counts
        self._newest = await newest_stamp(self._service.app.store.letters)
        scope = self.actor.scope
        if not (scope.tenants or scope.systems) or self._service.app.clock.elapsed() - self._counted_at > _SLOW:
            await self._count()
        return before != (self._newest, self._counts)

    async def _count(self) -> None:
        self._counts = await counts_stamp(self._service.app.store.letters)
        self._counted_at = self._service.app.clock.elapsed()

    async def _pauses_changed(self) -> bool:
        before, self._pauses = self._pauses, await self._service.pauses()
        return bool(before != self._pauses)


class Watcher:
    """Looks while somebody listens, and tells them."""

    def __init__(self, service: Service, *, most: int = _MOST) -> None:
        self._service = service
        self._most = most
        self._channels: dict[Any, Channel] = {}
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._before: Look | None = None
        self._progress: dict[str, ReplayProgress] = {}
        self._ended: str | None = None

    @property
    def listeners(self) -> list[Listener]:
        return [listener for channel in self._channels.values() for listener in channel.listeners]

    async def listen(self, actor: Actor, known: Known, *, login: str = "") -> Listener:
        """Hear of changes from now on.

        known   says who that is by then: who is another one hears no more
        login   what they came in with: those with the same one are asked for once

        Raises TooManyListeners where as many listen as may, in all or under one name."""
        everybody = self.listeners
        theirs = [listener for listener in everybody if listener.actor.id == actor.id]
        if len(theirs) >= _EACH:
            raise TooManyListeners(f"{len(theirs)} pages are open as {actor.name!r}: close one of them")
        if len(everybody) >= self._most:
            raise TooManyListeners(f"{len(everybody)} pages are open on this server: it can keep no more up to date")
        channel = await self._channel(actor)
        if self._before is None and self._ended is None:  # what changes from now on is a change
            self._before = await look_at(self._service.app.store, self._service.trail)
        listener = Listener(channel, actor, known, login)
        channel.listeners.append(listener)
        if self._ended is not None:
            listener.end(self._ended)
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return listener

    def leave(self, listener: Listener) -> None:
        """Hear no more. Harmless when done twice."""
        if listener in listener.channel.listeners:
            listener.channel.listeners.remove(listener)

    def end(self, why: str) -> None:
        """Tell everybody that it is over, and why; who comes later is told so at once."""
        self._ended = why
        for listener in self.listeners:
            listener.end(why)

    async def aclose(self) -> None:
        self.end("the server stops")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _channel(self, actor: Actor) -> Channel:
        key: Any = actor.role if actor.scope.is_everything else actor
        if key not in self._channels:
            made = Channel(self._service.seen_by(actor), actor)
            await made.begin()
            self._channels.setdefault(key, made)
        return self._channels[key]

    async def _run(self) -> None:
        end = self._service.app.events.subscribe(self._hear)
        try:
            await self._look_on()
        finally:
            end()

    def _hear(self, event: events.Event) -> None:
        if isinstance(event, _WAKES):
            self._woken.set()

    async def _look_on(self) -> None:
        clock = self._service.app.clock
        pulse: object = None
        heard = checked = clock.elapsed()
        while self.listeners or clock.elapsed() - heard < _LINGER:
            heard = clock.elapsed() if self.listeners else heard
            began = clock.elapsed()
            try:
                beat = await self._pulse()
                if beat is None or beat != pulse or self._woken.is_set():
                    self._woken.clear()
                    await self._look()
                    pulse = beat
                if began - checked >= _CHECKED:
                    checked = began
                    await self._check_who()
            except Unavailable as error:
                log.debug("nobody is told of changes: %s", error)
            except Exception:  # a document that nobody can read, say: who listens would never hear again
                log.exception("a look at what changed failed")
            least = min(max(LEAST, _SHARE * (clock.elapsed() - began)), _LONGEST)
            await clock.wait(self._woken, EVERY)
            if (left := began + least - clock.elapsed()) > 0:
                await clock.sleep(left)
        self._channels.clear()
        self._before = None

    async def _pulse(self) -> object:
        store = self._service.app.store
        return await store.pulse() if isinstance(store, HasPulse) else None

    async def _look(self) -> None:
        look = await look_at(self._service.app.store, self._service.trail)
        found = {} if self._before is None else changes(self._before.stamps, look.stamps)
        moved = await self._moved(look, {*found.get(REPLAYS, ())})
        for channel in list(self._channels.values()):
            if found or moved:
                told = await channel.heard(found, look)
                channel.tell(told, [replay for replay in moved if await channel.sees_replay(replay.id, look)])
        self._before = look

    async def _moved(self, look: Look, changed: set[str]) -> list[ReplayProgress]:
        """The replays that are further than they were, or were under way until now."""
        known, moved = look.documents[REPLAYS], []
        for id in sorted({document.id for document in look.running()} | (changed & known.keys())):
            tally = await self._service.app.store.ledger.tally(id)
            progress = ReplayProgress(id, known[id].body["state"], {str(status): n for status, n in tally.items()})
            if self._progress.get(id) != progress:
                self._progress[id] = progress
                moved.append(progress)
        self._progress = {id: progress for id, progress in self._progress.items() if id in known}
        return moved

    async def _check_who(self) -> None:
        """End those whose token is over, or who are somebody else by now."""
        asked: dict[tuple[str, str], Actor | None] = {}
        for listener in self.listeners:
            was, key = listener.actor, (listener.actor.id, listener.login)
            if key not in asked:
                asked[key] = await listener.known()
            now = asked[key]
            if now is None:
                listener.end("this token or login is over: it was revoked or ended, or has expired")
            elif (now.role, now.scope) != (was.role, was.scope):
                listener.end(f"your role or what you reach has changed: you are {now.role} now")


def _works_for(scope: Scope, document: Document) -> bool:
    return any(reaches_whole(scope, working["source"]) for working in document.body.get("sources", ()))
