"""At most so many automatic retries of a target are on their way, over all processes that share the store.

What is on its way is what the store says: letters that are RETRYING. Two processors that count at the same time would
both use the same capacity, so each claim takes a turn, a small document with a version for each target:

    read the version → count → claim → write the next version

Only one of those who read the same version can write the next one. The others undo their claim, and whoever reads the
version that it has written counts what it has claimed. Nobody holds a lock, so nobody can die with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.clock import Clock
from redrive.flow.resend import Resend
from redrive.flow.waiting import Target
from redrive.forensics.query import Query
from redrive.model import Letter, State, letter_id
from redrive.stores.base import Store
from redrive.stores.paging import every_letter

KIND = "retry-turn"
LOST_AFTER = timedelta(hours=1)
"""A retry of which nothing was heard for so long is not counted any more: its message may be gone, with its queue or
its broker, and must not keep others from their turn for ever."""


class Parallel:
    """Claims due letters within the limit."""

    def __init__(self, store: Store, way: Resend, clock: Clock, *, limit: int) -> None:
        self._store = store
        self._way = way
        self._clock = clock
        self._limit = limit

    async def claim(self, target: Target, most: int) -> Sequence[Letter]:
        """Due letters of that target, at most so many, and no more than there is capacity for."""
        name = letter_id(*target)  # short and plain, whatever the source is called
        turn = await self._store.documents.get(KIND, name)
        version = 0 if turn is None else turn.version
        capacity = min(most, self._limit - await self._on_their_way(target))
        if capacity <= 0:
            return []
        due = Query(transports=target[:1], sources=target[1:], states=(State.PENDING,), due=self._clock.now())
        letters = await self._way.claim(due, capacity)
        if letters and not await self._store.documents.put(KIND, name, {}, expect=version):
            await self._way.undo(letters)
            return []
        return letters

    async def _on_their_way(self, target: Target) -> int:
        """How many are on their way. Which of them are lost is looked up only where they leave no capacity."""
        query = Query(transports=target[:1], sources=target[1:], states=(State.RETRYING,))
        number = await self._store.letters.count(query)
        return number if number < self._limit else number - await self._lost(query)

    async def _lost(self, query: Query) -> int:
        """How many of them were sent too long ago."""
        too_old, lost = self._clock.now() - LOST_AFTER, 0
        async for letter in every_letter(self._store.letters, query):
            lost += letter.updated_at < too_old
        return lost
