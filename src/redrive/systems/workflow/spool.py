"""A store with a spool: a second store that takes new tasks while the first does not, for whatever reason.

Only new tasks are spooled: they are handed over, oldest first, as soon as the first store answers again. Nothing of
the spool is retried before that, because an answer that got lost may have been a yes, and then somebody else may have
the task already (docs/decisions/0015-workflow-spool.md). Handing over twice changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from redrive.clock import Clock, Pause
from redrive.errors import RedriveError, Unavailable, UsageError
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, Owner, State
from redrive.stores.base import Cursor, Group, GroupOrder, Hit, Page, Store, Tally
from redrive.stores.paging import every_page
from redrive.stores.recording import record_each
from redrive.telemetry.events import BackendDown, BackendUp, Events

T = TypeVar("T")
log = logging.getLogger("redrive")
_BATCH = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class SpooledStore:
    """The first store, and a spool for its letters."""

    def __init__(self, first: Store, spool: Store, events: Events, clock: Clock, *, owned: bool = True) -> None:
        self.features = first.features
        self.first = first
        self._owned = owned  # whether the first is closed with it
        self.spool = spool
        self.letters = SpooledLetters(first, spool, events, clock)
        self.versions = first.versions
        self.ledger = first.ledger
        self.documents = first.documents
        self.series = first.series

    async def check(self) -> None:
        await self.first.check()

    async def aclose(self) -> None:
        await self.letters.aclose()
        if self._owned:
            await self.first.aclose()
        await self.spool.aclose()


class SpooledLetters:
    """Letters of the first store; those it does not take wait in the spool."""

    def __init__(self, first: Store, spool: Store, events: Events, clock: Clock) -> None:
        self._first = first.letters
        self._spool = spool.letters
        self._keeps = spool.features.durable
        self._events = events
        self._clock = clock
        self._handing_over = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._looked = False  # whether a spool of an earlier process was looked into
        self._holds = 0
        self._pauses = Pause(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._pause = _FIRST_PAUSE  # the last one
        self._away_until: float | None = None
        self._is_down = False
        self._name = "store"
        self._refused: set[LetterId] = set()  # by the first store, for good: the log says why

    @property
    def spooled(self) -> int:
        """How many wait for the first store."""
        return self._holds

    @property
    def is_available(self) -> bool:
        """Whether the first store took or gave the last thing it was asked for."""
        return not self._is_down

    async def spooled_tallies(self) -> Sequence[Tally]:
        return await self._spool.tallies()

    @property
    def _is_asked(self) -> bool:
        """Whether the first store is asked at all: one that just did not answer is left alone for a while."""
        return self._away_until is None or self._clock.elapsed() >= self._away_until

    async def record(self, letters: Sequence[Letter]) -> None:
        if self._is_asked:
            with suppress(Exception):  # an event says so, and the spool takes what it did not
                await self._asked(lambda: self._first.record(letters))
                return
        await self._spool.record(letters)
        self._holds = await self._spool.count(Query())
        self._watch()

    async def get(self, id: LetterId) -> Letter | None:
        try:
            found = await self._asked(lambda: self._first.get(id))
        except Exception:
            kept = await self._spool.get(id)
            if kept is None:
                raise
            return kept
        return await self._spool.get(id) if found is None and self._holds else found

    async def seen(self, id: LetterId) -> Letter | None:
        """The letter as far as it can be known without waiting for a store that is away: for whoever enqueues."""
        if self._is_asked:
            with suppress(Exception):
                return await self.get(id)
        return await self._spool.get(id)

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        return await self._asked(
            lambda: self._first.search(query, after=after, limit=limit, oldest_first=oldest_first)
        )  # fmt: skip

    async def count(self, query: Query) -> int:
        return await self._asked(lambda: self._first.count(query))

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        return await self._asked(lambda: self._first.groups(query, limit=limit, skip=skip, order=order))

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        return await self._asked(lambda: self._first.tenants(groups, most=most))

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        return await self._asked(lambda: self._first.tallies(query))

    async def claim(
        self,
        query: Query,
        *,
        to: State,
        owner: Owner,
        now: datetime,
        until: datetime,
        limit: int,
        replay: str | None = None,
    ) -> Sequence[Letter]:
        return await self._asked(
            lambda: self._first.claim(query, to=to, owner=owner, now=now, until=until, limit=limit, replay=replay)
        )

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        return await self._asked(lambda: self._first.move(ids, expect=expect, to=to, now=now, owner=owner))

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        return await self._asked(lambda: self._first.prune(query, limit=limit))

    async def _asked(self, work: Callable[[], Awaitable[T]]) -> T:
        """The first store's answer, after it was given what waits: whoever asks sees that, too."""
        try:
            await self.hand_over()
            answer = await work()
        except UsageError:
            raise
        except Exception as error:  # a wrong mapping, or a client that somebody closed, is as good as away
            self._note_away(error)
            self._watch()
            raise
        self._note_back()
        return answer

    async def hand_over(self) -> int:
        """Give the first store all that waits; how many it took. Raises StoreUnavailable if it still is away."""
        if self._looked and self._holds <= len(self._refused):
            return 0
        async with self._handing_over:
            self._looked = True
            given = 0
            async for page in every_page(self._spool, Query(), size=_BATCH, oldest_first=True):
                given += await self._give(page)
            self._holds = await self._spool.count(Query())
        return given

    async def _give(self, letters: Sequence[Letter]) -> int:
        """Write them there before they are deleted here: a crash between the two leaves them in both, never in neither.

        Returns how many the first store took.
        """
        left = [letter for letter in letters if letter.id not in self._refused]
        refused = await record_each(self._first, left)
        for letter in left:
            if error := refused.get(letter.id):
                log.error("the store refuses task %r: it stays in the spool", letter.message.id, exc_info=error)
        self._refused |= refused.keys()
        taken = tuple(letter.id for letter in left if letter.id not in refused)
        await self._spool.prune(Query(ids=taken), limit=len(taken))
        return len(taken)

    def _watch(self) -> None:
        """Begin to try the first store again and again, until nothing waits for it."""
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._keep_trying())

    async def _keep_trying(self) -> None:
        while self._holds > len(self._refused) or self._is_down:
            await self._clock.sleep(self._pause)
            with suppress(Exception):  # an event says why, and it is tried again
                await self.count(Query(ids=()))

    def _note_away(self, error: Exception) -> None:
        """Emit that it is away: at once, and again whenever a pause was in vain."""
        if self._is_down and not self._is_asked:
            return
        self._pause = self._pauses.next()
        self._is_down, self._name = True, error.name if isinstance(error, Unavailable) else self._name
        self._away_until = self._clock.elapsed() + self._pause
        why = str(error) if isinstance(error, RedriveError) else f"{type(error).__name__}: {error}"
        self._events.emit(BackendDown(backend=self._name, why=why, pause=timedelta(seconds=self._pause)))

    def _note_back(self) -> None:
        self._away_until = None
        self._pauses.reset()
        if self._is_down:
            self._is_down = False
            self._events.emit(BackendUp(backend=self._name))

    async def aclose(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        with suppress(Exception):
            await self.hand_over()
        if self._holds and not self._keeps:
            log.error("%d tasks are lost with this process: give the queue a spool on disk (spool=…)", self._holds)
