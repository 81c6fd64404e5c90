"""How the suite gets at a store, and what every part of it does with one."""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.stores.base import Store
from redrive.testing.clock import START

ALL = Query()
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LATER = START + HOUR


class StoreBackend:
    """How the suite gets at a store. Subclass it for yours."""

    async def open(self) -> Store:
        """Another instance: on the same database if it can be shared, and otherwise on one of its own."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Take away what the backend made."""


async def claim(
    store: Store,
    query: Query,
    *,
    to: State,
    owner: str,
    now: datetime = LATER,
    limit: int = 100,
    replay: str | None = None,
) -> list[Letter]:
    taken = await store.letters.claim(
        query, to=to, owner=owner, now=now, until=now + MINUTE, limit=limit, replay=replay
    )
    return list(taken)


async def every_page(store: Store, query: Query, *, oldest_first: bool, limit: int = 200) -> list[Letter]:
    """Every page that the query has."""
    found: list[Letter] = []
    after = None
    while True:
        page = await store.letters.search(query, after=after, limit=limit, oldest_first=oldest_first)
        found += page.letters
        after = page.after
        if after is None:
            return found
