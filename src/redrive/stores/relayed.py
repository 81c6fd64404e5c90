"""A store that adds something to `record`, and passes everything else on to the store behind it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, Owner, State
from redrive.stores.base import Cursor, Documents, Group, Ledger, Letters, Page, Store, Tally


class RelayedLetters:
    """Passes every call on to the letters behind it. Subclass it and write `record`."""

    def __init__(self, letters: Letters) -> None:
        self.behind = letters

    async def record(self, letters: Sequence[Letter]) -> None:
        raise NotImplementedError

    async def get(self, id: LetterId) -> Letter | None:
        return await self.behind.get(id)

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        return await self.behind.search(query, after=after, limit=limit, oldest_first=oldest_first)

    async def count(self, query: Query) -> int:
        return await self.behind.count(query)

    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        return await self.behind.groups(query, limit=limit)

    async def tallies(self) -> Sequence[Tally]:
        return await self.behind.tallies()

    async def claim(self, query: Query, **how: Any) -> Sequence[Letter]:
        return await self.behind.claim(query, **how)

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        return await self.behind.move(ids, expect=expect, to=to, now=now, owner=owner)

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        return await self.behind.prune(query, limit=limit)


class RelayedStore:
    """The store behind it, with letters of its own."""

    def __init__(self, store: Store, letters: Letters) -> None:
        self.features = store.features
        self.letters = letters
        self.ledger: Ledger = store.ledger
        self.documents: Documents = store.documents
        self._store = store

    async def check(self) -> None:
        await self._store.check()

    async def aclose(self) -> None:
        await self._store.aclose()
